"""How a figure is written, wherever one is shown. Imports nothing: nightly reports are written without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.counts.acceptance import Acceptance

__all__ = ["percent", "rate_text", "with_error"]


def percent(value: float | None) -> str:
    """Return a share as a percentage, `n/a` if it was not measured."""
    return "n/a" if value is None else f"{value:.1%}"


def with_error(value: float | None, error: float | None) -> str:
    """Return a share in per cent with its standard error, without the per cent sign: `82.3±1.9`."""
    if value is None:
        return percent(value)
    return f"{100 * value:.1f}" if error is None else f"{100 * value:.1f}±{100 * error:.1f}"


def rate_text(acceptance: Acceptance | None) -> str:
    """Return the acceptance rate with its standard error: `82.3±1.9 %`, `n/a` if it was not measured."""
    if acceptance is None or acceptance.rate is None:
        return percent(None)
    return f"{with_error(acceptance.rate, acceptance.errors.get('rate'))} %"
