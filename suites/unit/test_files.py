"""The one writer of JSON."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

import pytest

from harness.files import json_text


def _refuse(constant: str) -> NoReturn:
    pytest.fail(f"{constant} is not JSON")


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (math.inf, None),
        ({"drop": {"low": -math.inf, "high": (math.inf, 0.5)}}, {"drop": {"low": None, "high": [None, 0.5]}}),
        ([math.nan, 1, True, None, "NaN"], [None, 1, True, None, "NaN"]),
        ({"é": 1e308, "n": 10**40}, {"é": 1e308, "n": 10**40}),
    ],
)
def test_what_json_cannot_say_is_null(value: Any, read: Any) -> None:
    for text in (json_text(value), json_text(value, indent=None), json_text(value, ascii_only=True)):
        assert json.loads(text, parse_constant=_refuse) == read


def test_one_line_and_escaped_text() -> None:
    assert json_text({"é": [1, 2]}, indent=None) == '{"é": [1, 2]}'
    assert json_text({"é": "\ud800"}, indent=None, ascii_only=True) == r'{"\u00e9": "\ud800"}'
