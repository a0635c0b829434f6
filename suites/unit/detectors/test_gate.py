"""The order of verdicts and their exit status."""

from __future__ import annotations

import itertools

import pytest

from harness.counts.statistics import Interval
from harness.detectors.acceptance import judge_drop, judge_floor
from harness.detectors.base import State
from harness.detectors.gate import exit_code, is_failure, verdict

# Every set of states that is not a matter of `pass` and `not_applicable` alone: r(egression), c(hanged),
# n(ot measured), i(nconclusive). The verdict, the exit status if the pair is not strict, and if it is.
TABLE = {
    "": ("pass", 0, 0),
    "i": ("inconclusive", 3, 3),
    "n": ("not_measured", 3, 3),
    "ni": ("not_measured", 3, 3),
    "c": ("changed", 0, 1),
    "ci": ("changed", 3, 1),
    "cn": ("changed", 3, 1),
    "cni": ("changed", 3, 1),
    "r": ("regression", 1, 1),
    "ri": ("regression", 1, 1),
    "rn": ("regression", 1, 1),
    "rni": ("regression", 1, 1),
    "rc": ("regression", 1, 1),
    "rci": ("regression", 1, 1),
    "rcn": ("regression", 1, 1),
    "rcni": ("regression", 1, 1),
}
LETTERS = {
    "r": State.REGRESSION,
    "c": State.CHANGED,
    "n": State.NOT_MEASURED,
    "i": State.INCONCLUSIVE,
}


def test_the_table_has_every_set() -> None:
    sets = {"".join(letters) for size in range(len(LETTERS) + 1) for letters in itertools.combinations(LETTERS, size)}
    assert set(TABLE) == sets


@pytest.mark.parametrize("letters", TABLE)
@pytest.mark.parametrize("others", [[State.PASS], [State.PASS, State.NOT_APPLICABLE], [State.NOT_APPLICABLE]])
def test_verdict_and_exit_status_of_every_set(letters: str, others: list[State]) -> None:
    meant, loose, strict = TABLE[letters]
    states = [*others, *(LETTERS[letter] for letter in letters)]
    if not letters and State.PASS not in others:
        meant, loose, strict = "not_measured", 3, 3
    for order in (states, states[::-1]):
        assert verdict(order) == meant
        assert exit_code(order, strict=False) == loose
        assert exit_code(order, strict=True) == strict


def test_nothing_applicable_is_not_a_pass() -> None:
    assert verdict([]) is State.NOT_MEASURED
    assert exit_code([], strict=False) == 3


@pytest.mark.parametrize(
    ("state", "statuses"),
    [
        ("regression", [0, 1, 3]),
        ("changed", [1, 3]),
        ("not_measured", [0, 1, 3]),
        ("inconclusive", [0, 1, 3]),
        ("pass", []),
        ("not_applicable", []),
    ],
)
def test_which_detector_fails_its_test(state: str, statuses: list[int]) -> None:
    """A change is a warning only if the check passes as a whole: it may be what explains the test that fails."""
    assert [status for status in (0, 1, 3) if is_failure(State(state), status)] == statuses


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
