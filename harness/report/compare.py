"""A comparison as a person reads it."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from harness.commands.compare import Comparison, Outcome
from harness.counts.acceptance import Acceptance
from harness.report.figures import with_error

__all__ = ["comparison_report"]


def comparison_report(result: Comparison) -> Group:
    """Return both sides' figures with the interval of each difference, and which side is better."""
    sides = [result.acceptance(side) for side in (result.first, result.second)]
    table = Table(box=None, pad_edge=False)
    for name in ("figure", "A", "B", "B - A", "interval"):
        table.add_column(name, justify="left" if name == "figure" else "right")
    for name, drop in result.drops.items():
        if drop is None:
            continue
        values = [_value(side, name) for side in sides]
        # Taken from 0.0, so that no difference is not shown as minus zero.
        low, high = 0.0 - drop.high, 0.0 - drop.low
        table.add_row(name, *values, f"{0.0 - drop.estimate:+.4f}", f"[{low:+.4f}, {high:+.4f}]")
    lines = [Text(f"A: {result.first.label}"), Text(f"B: {result.second.label}")]
    return Group(*lines, table, Text(_verdict(result)))


def _value(side: Acceptance, name: str) -> str:
    """Return a figure of one side with its standard error; names as in `harness.counts.acceptance`."""
    error = side.errors.get(name)
    if name == "length":
        return "n/a" if side.length is None else f"{side.length:.3f}" + (f"±{error:.3f}" if error is not None else "")
    if name == "rate":
        return f"{with_error(side.rate, error)} %"
    values = {"u": side.unconditional, "c": side.conditional, "t": side.step_accuracy}[name[0]]
    return f"{with_error(values[int(name[1:])], error)} %"


def _verdict(result: Comparison) -> str:
    prompts = f"{len(result.prompts)} prompts"
    match result.outcome:
        case Outcome.WORSE | Outcome.BETTER:
            return f"{result.better} accepts more tokens, {prompts}"
        case Outcome.SAME:
            return f"no difference beyond {result.margin:.3f}, {prompts}"
        case Outcome.INCONCLUSIVE:
            needed = f"; about {result.needed} prompts would decide" if result.needed else ""
            return f"inconclusive on {prompts}{needed}"
        case Outcome.NOT_MEASURED:
            return "nothing was measured"
