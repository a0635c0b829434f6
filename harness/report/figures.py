"""How a figure is written, wherever one is shown. Imports nothing: also what runs without torch shows figures."""

from __future__ import annotations

__all__ = ["percent", "with_error"]


def percent(value: float | None) -> str:
    """Return a share as a percentage, `n/a` where nothing was measured."""
    return "n/a" if value is None else f"{value:.1%}"


def with_error(value: float | None, error: float | None) -> str:
    """Return a share in per cent with its standard error, without the sign: `82.3±1.9`."""
    if value is None:
        return percent(value)
    return f"{100 * value:.1f}" if error is None else f"{100 * value:.1f}±{100 * error:.1f}"
