"""What `--json` prints is what the shipped schemas say. The fixture `harness` holds every output to its schema."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.golden.schema import GoldenDocument
from harness.report import schemas
from harness.report.bodies.golden import ShowBody
from suites.support.builtin_pairs import FIXTURES
from suites.support.command import Command
from suites.support.schemas import require_valid

# What `harness measure --json` printed before its objects had a version.
OLD_RESULT = Path(__file__).parents[1] / "support" / "old_result.json"


def test_the_shipped_schemas_are_what_the_types_give() -> None:
    """If this fails: python -m harness.report.schemas."""
    generated = schemas.generate()
    assert schemas.names() == sorted(generated)
    for name, text in generated.items():
        assert (schemas.FOLDER / f"{name}.schema.json").read_text(encoding="utf-8") == text, name


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if "properties" in schema and schema.get("type") == "object":
            yield schema
        for part in schema.values():
            yield from _objects(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _objects(part)


@pytest.mark.parametrize("name", schemas.names())
def test_every_object_is_closed_versioned_and_told(name: str) -> None:
    schema = schemas.shipped(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["schema_version"]["const"] == 1
    for part in _objects(schema):
        assert part["additionalProperties"] is False
        assert sorted(part["required"]) == sorted(part["properties"])
        assert part["description"]
        for key, value in part["properties"].items():
            text = value.get("description", "")
            assert "\n" not in text
            assert "`None`" not in text, key


@pytest.mark.parametrize(
    "arguments",
    [
        ("measure", "PAIR"),
        ("measure", "PAIR", "--engine", "reference:sequential", "--prompts", "2"),
        ("check", "PAIR"),
        ("check", "PAIR", "--engine", "reference:sequential", "--prompts", "p1,p3"),
        ("record", "PAIR", "--reason", "again"),
        ("compare", "PAIR", "PAIR", "--engine-b", "reference:sequential"),
        ("power", "PAIR", "--drop", "0.02", "--prompts", "6", "--simulations", "100"),
        ("trace", "PAIR"),
        ("trace", "PAIR", "--static"),
        ("layers", FIXTURES / "tiny/draft", "--target", FIXTURES / "tiny/target"),
        ("layers", FIXTURES / "tiny/draft"),
        ("translate", "--from", "specforge", "--to", "sglang", "--layers", "30", "0", "13", "25"),
        ("golden", "show", "PAIR"),
        ("golden", "diff", "PAIR", "PAIR"),
        ("golden", "verify", "PAIR"),
        ("golden", "orphans", "PAIR/.."),
        ("schema",),
        ("schema", "golden", "show"),
    ],
    ids=lambda arguments: " ".join(str(word) for word in arguments if "/" not in str(word)),
)
def test_each_command_prints_its_object(arguments: tuple[object, ...], recorded: Path, harness: Command) -> None:
    names = {"PAIR": recorded, "PAIR/..": recorded.parent}
    outcome = harness(*(names.get(str(word), word) for word in arguments), "--json")
    assert outcome.status == 0, outcome.err
    assert "error" not in outcome.json


def test_the_tiny_pairs_check_is_what_the_schema_says(harness: Command) -> None:
    body = harness("check", "tiny", "--json").json
    require_valid("check", body)
    assert body["detectors"]["acceptance"]["estimated_rate"]["estimate"] == body["acceptance"]["rate"]
    assert "positions" not in json.dumps(list(_keys(body)))
    for path in ([], ["acceptance"], ["detectors"], ["detectors", "target"], ["drop"], ["by_prompt", 0]):
        for change in ("added", "removed"):
            damaged = copy.deepcopy(body)
            part: Any = damaged
            for key in path:
                part = part[key]
            if change == "added":
                part["new"] = 1
            else:
                part.popitem()
            with pytest.raises(AssertionError):
                require_valid("check", damaged)


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from _keys(item)
    elif isinstance(value, list):
        for item in value:
            yield from _keys(item)


def test_a_rate_of_some_prompts_and_its_estimate_have_two_names(recorded: Path, harness: Command) -> None:
    """Measured on those that were run, estimated for all: two figures of one object, which one word named."""
    body = harness("check", recorded, "--prompts", "p1,p3", "--json").json
    measured, estimated = body["acceptance"]["rate"], body["detectors"]["acceptance"]["estimated_rate"]
    whole = harness("measure", recorded, "--json").json["acceptance"]["rate"]
    assert measured != whole
    assert estimated["estimate"] == pytest.approx(whole)
    assert "rate" not in body["detectors"]["acceptance"]


def test_bounds_that_are_infinite_are_null(recorded: Path, harness: Command) -> None:
    config = recorded.parent / "draft" / "config.json"
    config.write_text(config.read_text().replace("[-1, 1, 3]", "[3, 1, -1]"))
    body = harness("check", recorded, "--prompts", "p1", "--json").json
    assert (body["drop"]["low"], body["drop"]["high"]) == (None, None)
    assert body["drop"]["changed_prompts"] == 1


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("check", "nothing.pair.toml"), "InputError"),
        (("check", "tiny", "--colour"), "UsageError"),
        (("golden", "paint"), "UsageError"),
        (("schema", "golden"), "InputError"),
    ],
)
def test_an_error_is_an_object_with_a_version(arguments: tuple[str, ...], kind: str, harness: Command) -> None:
    outcome = harness(*arguments, "--json")
    assert outcome.status == 2
    assert (outcome.json["schema_version"], outcome.json["error"]["type"]) == (1, kind)


def test_a_goldens_own_version_has_another_name(recorded: Path, harness: Command) -> None:
    body = harness("golden", "show", recorded, "--json").json
    assert (body["schema_version"], body["golden_version"]) == (1, 2)
    stored = json.loads(Path(body["golden"]).read_text())
    assert stored["schema_version"] == body["golden_version"]


def test_all_that_a_golden_holds_is_shown() -> None:
    renamed = {"schema_version": "golden_version", "prompts": "by_prompt"}
    held = {renamed.get(name, name) for name in GoldenDocument.model_fields}
    assert held <= set(ShowBody.__dataclass_fields__)


def test_schemas_are_listed_by_their_commands(harness: Command) -> None:
    listed = harness("schema").out.splitlines()
    assert {"check", "golden show", "error", "pytest"} <= set(listed)
    assert harness("schema", "check").json == schemas.shipped("check")


def test_a_result_of_the_form_before_can_still_be_compared(recorded: Path, harness: Command, tmp_path: Path) -> None:
    old = json.loads(OLD_RESULT.read_text())
    assert "schema_version" not in old
    assert harness("compare", OLD_RESULT, OLD_RESULT, "--json").json["prompts"] == 2
    now = tmp_path / "now.json"
    now.write_text(harness("measure", recorded, "--json").out)
    body = harness("compare", OLD_RESULT, now, "--json").json
    assert body["prompts"] == 2
    assert body["a"]["acceptance"]["rate"] == old["acceptance"]["rate"]
    assert body["a"]["acceptance"]["step_accuracy"] == old["acceptance"]["step_accuracy"]
    assert body["a"]["label"] == "random (reference:replay cpu float32)"


def test_a_result_of_another_version_is_refused(harness: Command, tmp_path: Path) -> None:
    file = tmp_path / "newer.json"
    file.write_text(json.dumps(json.loads(OLD_RESULT.read_text()) | {"schema_version": 2}))
    outcome = harness("compare", file, file, "--json")
    assert (outcome.status, outcome.json["error"]["key"]) == (2, "schema_version")
