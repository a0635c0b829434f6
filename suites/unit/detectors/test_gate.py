"""The order of verdicts, and the exit status of every set of states, for strict pairs and others."""

from __future__ import annotations

import itertools

import pytest

from harness.counts.statistics import Interval
from harness.detectors.acceptance import judge_drop, judge_floor
from harness.detectors.base import State
from harness.detectors.gate import exit_code, is_failure, verdict

# Every set of states without `not_applicable`, in DESIGN's order: the verdict, the status of a strict pair, and that of
# another. R regression, C changed, N not_measured, I inconclusive, P pass.
TABLE = {
    "R": ("regression", 1, 1),
    "RC": ("regression", 1, 1),
    "RN": ("regression", 1, 1),
    "RI": ("regression", 1, 1),
    "RP": ("regression", 1, 1),
    "RCN": ("regression", 1, 1),
    "RCI": ("regression", 1, 1),
    "RCP": ("regression", 1, 1),
    "RNI": ("regression", 1, 1),
    "RNP": ("regression", 1, 1),
    "RIP": ("regression", 1, 1),
    "RCNI": ("regression", 1, 1),
    "RCNP": ("regression", 1, 1),
    "RCIP": ("regression", 1, 1),
    "RNIP": ("regression", 1, 1),
    "RCNIP": ("regression", 1, 1),
    "C": ("changed", 1, 0),
    "CN": ("changed", 1, 3),
    "CI": ("changed", 1, 3),
    "CP": ("changed", 1, 0),
    "CNI": ("changed", 1, 3),
    "CNP": ("changed", 1, 3),
    "CIP": ("changed", 1, 3),
    "CNIP": ("changed", 1, 3),
    "N": ("not_measured", 3, 3),
    "NI": ("not_measured", 3, 3),
    "NP": ("not_measured", 3, 3),
    "NIP": ("not_measured", 3, 3),
    "I": ("inconclusive", 3, 3),
    "IP": ("inconclusive", 3, 3),
    "P": ("pass", 0, 0),
    "": ("not_measured", 3, 3),
}
LETTERS = {
    "R": State.REGRESSION,
    "C": State.CHANGED,
    "N": State.NOT_MEASURED,
    "I": State.INCONCLUSIVE,
    "P": State.PASS,
    "": State.NOT_APPLICABLE,
}


def test_the_table_has_every_set_of_states() -> None:
    every = {"".join(part) for size in range(6) for part in itertools.combinations("RCNIP", size)}
    assert set(TABLE) == every
    assert set(LETTERS.values()) == set(State)


@pytest.mark.parametrize("present", TABLE, ids=lambda present: present or "nothing")
@pytest.mark.parametrize("not_applicable", [False, True])
def test_verdict_and_exit_status_of_a_set_of_states(present: str, not_applicable: bool) -> None:
    expected, strict, loose = TABLE[present]
    given = [LETTERS[letter] for letter in present] + [State.NOT_APPLICABLE] * not_applicable
    for states in (given, given[::-1], given * 2):
        assert verdict(states) == expected
        assert exit_code(states, strict=True) == strict
        assert exit_code(states, strict=False) == loose


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
