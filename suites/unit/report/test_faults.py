"""The figures of faults as tables show them."""

from __future__ import annotations

from harness.report.faults import change


def test_a_loss_is_shown_as_a_change() -> None:
    assert change({"estimate": 0.0, "low": 0.0, "high": 0.0}, 100, 1) == "+0.0 [+0.0, +0.0]"
    assert change({"estimate": 0.123, "low": 0.1, "high": 0.2}, 100, 1) == "-12.3 [-20.0, -10.0]"
    assert change({"estimate": float("nan"), "low": 0.0, "high": 0.0}, 1, 4) == "not finite"


def test_a_loss_too_small_to_show_has_no_sign() -> None:
    """What rounding leaves of a right wiring is neither a loss nor a gain."""
    assert change({"estimate": 1e-9, "low": -1e-9, "high": 1e-9}, 1, 4) == "+0.0000 [+0.0000, +0.0000]"
