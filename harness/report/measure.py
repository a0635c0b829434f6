"""A measurement as a person reads it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.commands.measure import Measurement
from harness.counts.acceptance import Acceptance
from harness.errors import one_line
from harness.report.figures import with_error

__all__ = ["acceptance_table", "headline", "measurement_report"]


def headline(measurement: Measurement) -> str:
    """Return the pair, the engine and the prompts on one line."""
    pair, run = measurement.pair, measurement.run
    return (
        f"{pair.name}: {run.engine} on {run.device} in {run.dtype}, {len(run.records)} prompts, k = {run.num_steps}, "
        f"boundaries {list(pair.boundaries)}"
    )


def acceptance_table(measurement: Measurement) -> Table:
    """Return acceptance by category and over all prompts."""
    k = measurement.run.num_steps
    total = measurement.acceptance
    # Narrow enough for a terminal of 80 columns at k = 4.
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("category")
    for name in ("prompts", "rounds", "rate %", "length", *(f"u{step} %" for step in range(k))):
        table.add_column(name, justify="right", no_wrap=True)
    for name, acceptance in measurement.by_category().items():
        table.add_row(Text(one_line(name)), *_cells(acceptance))
    table.add_section()
    table.add_row("all", *_cells(total), style="bold")
    if total.step_accuracy:
        accuracy = [with_error(value, total.errors.get(f"t{step}")) for step, value in enumerate(total.step_accuracy)]
        table.add_row("accuracy", "", "", "", "", *accuracy, style="dim")
    return table


def _cells(acceptance: Acceptance) -> list[str]:
    error = acceptance.errors.get("length")
    length = "n/a" if acceptance.length is None else f"{acceptance.length:.2f}"
    if error is not None and acceptance.length is not None:
        length += f"±{error:.2f}"
    rates = [
        with_error(value, acceptance.errors.get(f"u{step}")) for step, value in enumerate(acceptance.unconditional)
    ]
    rate = with_error(acceptance.rate, acceptance.errors.get("rate"))
    return [str(acceptance.prompts), str(acceptance.rounds), rate, length, *rates]


def measurement_report(measurement: Measurement, loops: Sequence[str]) -> Group:
    """Return a measurement's report."""
    parts: list[RenderableType] = [Text(headline(measurement)), acceptance_table(measurement)]
    if loops:
        parts.append(Text(f"loops (they inflate acceptance): {one_line(', '.join(loops))}", style="yellow"))
    parts += [Text(f"note: {one_line(note)}", style="dim") for note in measurement.run.notes]
    return Group(*parts)
