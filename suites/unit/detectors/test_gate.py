"""The order of verdicts and their exit status."""

from __future__ import annotations

import itertools

import pytest

from harness.counts.statistics import Interval
from harness.detectors.acceptance import judge_drop, judge_floor
from harness.detectors.base import State
from harness.detectors.gate import exit_code, verdict

ORDER = ["regression", "not_measured", "inconclusive", "changed", "pass"]
STRICT = ["regression", "changed", "not_measured", "inconclusive", "pass"]


@pytest.mark.parametrize("strict", [False, True])
def test_the_first_present_state_wins(strict: bool) -> None:
    for size in range(1, len(State) + 1):
        for states in itertools.combinations(State, size):
            order = STRICT if strict else ORDER
            expected = next((name for name in order if State(name) in states), "not_measured")
            assert verdict(states, strict=strict) == expected


def test_nothing_applicable_is_not_a_pass() -> None:
    assert verdict([], strict=False) is State.NOT_MEASURED
    assert verdict([State.NOT_APPLICABLE], strict=True) is State.NOT_MEASURED


@pytest.mark.parametrize(
    ("state", "loose", "strict"),
    [("regression", 1, 1), ("changed", 0, 1), ("not_measured", 3, 3), ("inconclusive", 3, 3), ("pass", 0, 0)],
)
def test_exit_status(state: str, loose: int, strict: int) -> None:
    assert exit_code(State(state), strict=False) == loose
    assert exit_code(State(state), strict=True) == strict


def _interval(low: float, estimate: float, high: float) -> Interval:
    return Interval(estimate, low, high, 0.01, 64, 0.001)


@pytest.mark.parametrize(
    ("low", "estimate", "high", "state"),
    [
        (-0.004, 0.002, 0.008, "pass"),
        (0.002, 0.005, 0.008, "pass"),
        (-0.02, -0.01, 0.0, "pass"),
        (0.001, 0.02, 0.04, "regression"),
        (-0.001, 0.02, 0.04, "inconclusive"),
        (0.0, 0.02, 0.04, "inconclusive"),
    ],
)
def test_drop_against_a_margin_of_one_point(low: float, estimate: float, high: float, state: str) -> None:
    assert judge_drop(_interval(low, estimate, high), 0.01) == state


@pytest.mark.parametrize(
    ("low", "high", "state"),
    [(0.71, 0.8, "pass"), (0.7, 0.8, "pass"), (0.6, 0.69, "regression"), (0.69, 0.71, "inconclusive")],
)
def test_rate_against_the_floor(low: float, high: float, state: str) -> None:
    assert judge_floor(_interval(low, (low + high) / 2, high), 0.7) == state
