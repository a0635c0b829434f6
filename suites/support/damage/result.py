"""Damage to a result that `harness compare` reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from suites.support.damage.editing import RESULT, Damage, broken_json, change_json, set_value, write


def _bad(name: str, apply: Callable[[Path], object], *says: str) -> Damage:
    return Damage(f"result {name}", apply, (RESULT, *says), ("compare", "RESULT", "PAIR"))


_FIRST = ("by_prompt", 0)

RESULTS = [
    *(
        Damage(damage.name, damage.apply, damage.says, ("compare", "RESULT", "PAIR"))
        for damage in broken_json(RESULT, "result", "Next: write one with harness measure")
    ),
    _bad(
        "of something else",
        write(RESULT, b'{"pair": "random"}'),
        "engine: the key is missing",
        "Next: write one with harness",
    ),
    _bad(
        "without prompts",
        set_value(RESULT, "by_prompt", to=[]),
        "by_prompt",
        "expected at least 1",
        "Next: write one with harness",
    ),
    _bad(
        "with a count in words",
        set_value(RESULT, *_FIRST, "histogram", 0, to="1"),
        "by_prompt.0.histogram.0",
        "integer",
    ),
    _bad(
        "with a negative count",
        set_value(RESULT, *_FIRST, "histogram", 0, to=-1),
        "by_prompt.0.histogram.0",
        "equal to 0",
    ),
    _bad(
        "with a count of 400 digits", set_value(RESULT, *_FIRST, "histogram", 0, to=10**400), "by_prompt.0.histogram.0"
    ),
    _bad(
        "with an empty histogram", set_value(RESULT, *_FIRST, "histogram", to=[]), "by_prompt.0.histogram", "at least 2"
    ),
    _bad(
        "with short correct",
        set_value(RESULT, *_FIRST, "correct", to=[2]),
        "by_prompt.0",
        "'p0' has 1 entries in correct, not 4",
    ),
    _bad(
        "with more correct than positions", set_value(RESULT, *_FIRST, "correct", 0, to=24), "'p0' has 24 correct of 23"
    ),
    _bad("with correct alone", set_value(RESULT, *_FIRST, "evaluated", to=None), "'p0' has 0 entries in evaluated"),
    _bad(
        "with a prompt twice", change_json(RESULT, lambda body: body["by_prompt"].append(body["by_prompt"][0])), "'p0'"
    ),
    Damage(
        "result of other prompts",
        change_json(RESULT, lambda body: [row.update(id="q" + row["id"]) for row in body["by_prompt"]]),
        ("random", "no prompt in common", "expected"),
        ("compare", "RESULT", "PAIR"),
    ),
    Damage(
        "result of altered prompts",
        set_value(RESULT, *_FIRST, "hash", to="0" * 16),
        ("'p0'", "different prompts under one id", "found 0000000000000000 and", "expected"),
        ("compare", "RESULT", "PAIR"),
    ),
    Damage(
        "result of other chains",
        change_json(
            RESULT,
            lambda body: [row.update(histogram=[1, 1], correct=None, evaluated=None) for row in body["by_prompt"]],
        ),
        ("num_steps", "different chain lengths", "found 1 and 4", "expected"),
        ("compare", "RESULT", "PAIR"),
    ),
]
