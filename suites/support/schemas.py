"""Holds what a command printed with `--json` to the schema that is shipped for it."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema

from harness.report.schemas import names, shipped

__all__ = ["read_valid", "require_printed", "require_valid"]


@functools.cache
def _validator(name: str) -> jsonschema.Draft202012Validator:
    schema = shipped(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def require_valid(name: str, body: Any) -> None:
    """Fail unless an object is what a shipped schema says."""
    errors = [f"{error.json_path}: {error.message[:400]}" for error in _validator(name).iter_errors(body)]
    assert not errors, "\n".join(errors)


def read_valid(name: str, file: Path) -> dict[str, Any]:
    """Return the object that a file holds, which must be what a shipped schema says."""
    body = _parse(file.read_text(encoding="utf-8"))
    require_valid(name, body)
    return body


def _parse(text: str) -> dict[str, Any]:
    def not_json(value: str) -> None:
        raise AssertionError(f"{value} is not JSON")

    body = json.loads(text, parse_constant=not_json)
    assert isinstance(body, dict)
    return body


def require_printed(arguments: Sequence[str], text: str) -> None:
    """Fail unless a command's `--json` is one object of that command's schema, or of the error's."""
    body = _parse(text)
    if "$schema" in body:
        jsonschema.Draft202012Validator.check_schema(body)
        return
    if "error" in body:
        require_valid("error", body)
        return
    words = (arguments[0], "-".join(arguments[:2]))
    require_valid(next(word for word in words if word in names()), body)
