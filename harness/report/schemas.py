"""The JSON schemas of all that `--json` prints: generated from the bodies' types, and shipped with the package.

`python -m harness.report.schemas` writes them into `harness/schemas`, after a body or a type in it has changed.
"""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import InputError
from harness.files import write_atomically
from harness.report.bodies.base import Body

__all__ = ["FOLDER", "SchemasBody", "generate", "main", "names", "shipped"]

FOLDER = Path(__file__).parents[1] / "schemas"
_SUFFIX = ".schema.json"


@dataclass(frozen=True)
class SchemasBody(Body):
    """`harness schema`: the names of the schemas.

    Attributes:
        schemas: A command's words joined by hyphens, `error` and `pytest`.
    """

    schemas: tuple[str, ...]


def names() -> list[str]:
    """Return the names of the shipped schemas: a command's words joined by hyphens, `error` and `pytest`."""
    return sorted(file.name.removesuffix(_SUFFIX) for file in FOLDER.glob(f"*{_SUFFIX}"))


def shipped(name: str) -> dict[str, Any]:
    """Return a shipped schema.

    Raises:
        InputError: The name is not one of `names`.
    """
    known = names()
    if name not in known:
        raise InputError("unknown schema", key="COMMAND", found=name, expected=", ".join(known).replace("-", " "))
    schema: dict[str, Any] = json.loads((FOLDER / f"{name}{_SUFFIX}").read_text(encoding="utf-8"))
    return schema


def _bodies() -> dict[str, Any]:
    """Return the body's type by the schema's name; imported here, since reading a schema must not load torch."""
    from harness.report.bodies import (
        check,
        compare,
        conformance,
        faults,
        golden,
        layers,
        measure,
        nightly,
        power,
        record,
        trace,
        translate,
    )
    from harness.report.bodies.base import ErrorBody
    from harness.report.bodies.session import SessionBody

    return {
        "check": check.CheckBody,
        "compare": compare.CompareBody,
        "conformance": conformance.ConformanceBody,
        "error": ErrorBody,
        "faults": faults.FaultsBody,
        "golden-diff": golden.DiffBody,
        "golden-orphans": golden.OrphansBody,
        "golden-show": golden.ShowBody,
        "golden-verify": golden.VerifyBody,
        "layers": layers.LayersBody,
        "measure": measure.MeasureBody,
        "nightly-publish": nightly.PublishBody,
        "nightly-report": nightly.NightlyBody,
        "power": power.PowerBody,
        "pytest": SessionBody[check.CheckBody],
        "record": record.RecordBody,
        "schema": SchemasBody,
        "trace": trace.TraceBody,
        "translate": translate.TranslateBody,
    }


def generate() -> dict[str, str]:
    """Return the text of every schema, by its name."""
    import pydantic
    from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
    from pydantic_core import core_schema

    class Generator(GenerateJsonSchema):
        """Every object is closed, has all of its keys and says what they are."""

        def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - titles repeat the keys
            return False

        def field_is_required(self, field: Any, total: bool) -> bool:  # noqa: ARG002 - what is printed is all there
            return True

        def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
            return _described(super().dataclass_schema(schema), schema["cls"])

        def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
            return _described(super().model_schema(schema), schema["cls"])

    result = {}
    for name, body in _bodies().items():
        adapter = pydantic.TypeAdapter(body)
        schema = adapter.json_schema(mode="serialization", by_alias=False, schema_generator=Generator)
        title = _TITLES.get(name, f"harness {name.replace('-', ' ')} --json")
        schema = {"$schema": Generator.schema_dialect, "title": title} | schema
        result[name] = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    return result


_TITLES = {"error": "harness … --json, on an error", "pytest": "pytest --acceptance-json"}


def _described(schema: dict[str, Any], cls: type) -> dict[str, Any]:
    """Return a class's schema as closed, with the first paragraph and the `Attributes` of its docstrings."""
    schema.pop("title", None)
    schema["additionalProperties"] = False
    # A field that would be a keyword of Python has an underscore at its end.
    schema["properties"] = {name.removesuffix("_"): part for name, part in schema["properties"].items()}
    schema["required"] = [name.removesuffix("_") for name in schema["required"]]
    told: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        told |= _attributes(base.__doc__ or "")
    for name, part in schema["properties"].items():
        part.pop("default", None)
        if name in told:
            part["description"] = told[name]
    schema["description"] = " ".join((cls.__doc__ or "").split("\n\n")[0].replace("`None`", "`null`").split())
    return schema


def _attributes(docstring: str) -> dict[str, str]:
    """Return the descriptions under `Attributes:` in a docstring of Google's style, by name."""
    section = inspect.cleandoc(docstring).partition("Attributes:\n")[2].split("\n\n")[0]
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", section, re.MULTILINE)
    return {name.removesuffix("_"): " ".join(text.replace("`None`", "`null`").split()) for name, text in found}


def main() -> None:
    """Write every schema."""
    for name, text in generate().items():
        write_atomically(FOLDER / f"{name}{_SUFFIX}", text.encode())


if __name__ == "__main__":
    main()
