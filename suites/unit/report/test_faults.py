"""The figures of faults as tables show them."""

from __future__ import annotations

from harness.counts.statistics import Interval
from harness.report.faults import change


def _interval(estimate: float, low: float, high: float) -> Interval:
    return Interval(estimate, low, high, None, prompts=64, alpha=0.001)


def test_a_loss_is_shown_as_a_change() -> None:
    assert change(_interval(0.0, 0.0, 0.0), 100, 1) == "+0.0 [+0.0, +0.0]"
    assert change(_interval(0.123, 0.1, 0.2), 100, 1) == "-12.3 [-20.0, -10.0]"
    assert change(_interval(float("nan"), 0.0, 0.0), 1, 4) == "not finite"


def test_a_loss_too_small_to_show_has_no_sign() -> None:
    """What rounding leaves of a right wiring is neither a loss nor a gain."""
    assert change(_interval(1e-9, -1e-9, 1e-9), 1, 4) == "+0.0000 [+0.0000, +0.0000]"
