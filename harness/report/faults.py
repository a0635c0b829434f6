"""Faults as a table for a terminal, and as Markdown tables for a page."""

from __future__ import annotations

import math
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.commands.faults import FaultsResult
from harness.counts.statistics import Interval
from harness.detectors.base import Question, share_of
from harness.errors import InputError
from harness.faults.measure import FaultResult
from harness.files import read_text, write_atomically

__all__ = [
    "DRIFT_COLUMNS",
    "WIRE_COLUMNS",
    "change",
    "faults_report",
    "markdown_tables",
    "require_place",
    "write_tables",
]

_BEGIN, _END = "<!-- wirings of {}: begin -->", "<!-- wirings of {}: end -->"
_FIGURES = (
    "rate %",
    "change, points",
    "change of likelihood, nats",
    "prompts with other proposals",
    "positions, %",
    "seen by",
)
WIRE_COLUMNS = ("wiring", "how", *_FIGURES)
DRIFT_COLUMNS = ("target in", "tokens that it would not choose", "how", *_FIGURES)


def faults_report(result: FaultsResult) -> Group:
    """Return the faults for a terminal, and what follows from them."""
    measured = result.measured
    table = Table(box=None, pad_edge=False)
    # Without the page's intervals and likelihoods: a fault fits on a line of 120 columns, and on two of 80.
    table.add_column("wiring", no_wrap=True)
    table.add_column("how")
    table.add_column("rate %", justify="right", no_wrap=True)
    table.add_column("points", justify="right", no_wrap=True)
    table.add_column("seen by")
    for one in (measured.right, *measured.wrong):
        as_it_should = bool(one.seen_by) == (one is not measured.right)
        table.add_row(*_short_cells(one), style="" if as_it_should else "bold red")
    table.add_section()
    for one in measured.drift:
        name, *rest = _short_cells(one)
        table.add_row(f"target in {name}", *rest)
    lines: list[RenderableType] = [
        Text(f"{result.pair.name}: the right wiring, {len(measured.wrong)} wrong ones, the target in other numbers"),
        table,
        Text(""),
        Text(_note(result), style="dim"),
    ]
    if measured.left_out:
        text = f"left out, since this pair cannot have them or they change nothing: {', '.join(measured.left_out)}"
        lines.append(Text(text, style="dim"))
    lines.append(Text(f"golden: {result.golden.file}", style="dim"))
    lines.append(Text(_conclusion(result), style="green" if result.exit_code == 0 else "bold red"))
    return Group(*lines)


def _short_cells(one: FaultResult) -> tuple[str, ...]:
    error = one.drop.standard_error
    points = f"{_signed(one.drop.estimate, 100, 1)}" + ("" if error is None else f"±{100 * error:.1f}")
    return one.name, one.what, f"{100 * one.rate:.1f}", points, _seen_by(one)


def _conclusion(result: FaultsResult) -> str:
    right = result.measured.right
    parts = []
    if result.unseen:
        parts.append(f"seen by no detector: {', '.join(result.unseen)}")
    if right.seen_by:
        parts.append(f"the right wiring differs from its golden: {', '.join(right.seen_by)}; see harness check")
    return "; ".join(parts) or "every wrong wiring is seen by some detector, and the right one by none"


def markdown_tables(result: FaultsResult) -> str:
    """Return the faults as Markdown tables: the wrong wires, a note, the target in other numbers."""
    measured = result.measured
    wires = [_line(_cells(one)) for one in (measured.right, *measured.wrong)]
    drift = []
    for one in measured.drift:
        name, *rest = _cells(one)
        figures = one.target
        other = f"{figures.drifted + figures.near_ties} of {figures.evaluated}"
        drift.append(_line((name, other, *rest)))
    return "\n".join(
        (
            *_head(WIRE_COLUMNS),
            *wires,
            "",
            _note(result),
            "",
            *_head(DRIFT_COLUMNS),
            *drift,
        )
    )


def _head(columns: tuple[str, ...]) -> tuple[str, str]:
    return _line(columns), f"|{'---|' * len(columns)}"


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _note(result: FaultsResult) -> str:
    alpha = result.pair.settings.gate.alpha
    text = f"Intervals at {100 * (1 - share_of(alpha, Question.DROP)):.3f} %, prompts as clusters."
    noise = result.noise
    if noise is None:
        return f"{text} The golden does not say what rounding alone changes."
    worst = max(noise.arms, key=lambda arm: arm.changed / arm.windows)
    return f"{text} Rounding alone changed {worst.changed} of {worst.windows} windows of proposals ({worst.how})."


def _cells(one: FaultResult) -> tuple[str, ...]:
    """Return a row's cells: name, how, then `_FIGURES`."""
    proposals, share = one.proposals, one.proposals.changed_share
    return (
        one.name,
        one.what,
        f"{100 * one.rate:.1f}",
        change(one.drop, 100, 1),
        change(one.loss, 1, 4),
        f"{proposals.changed_prompts} of {proposals.prompts}",
        f"{100 * share.estimate:.1f} [{100 * share.low:.1f}, {100 * share.high:.1f}]",
        _seen_by(one),
    )


def _seen_by(one: FaultResult) -> str:
    return ", ".join(one.seen_by) or "none"


def change(loss: Interval, unit: float, digits: int) -> str:
    """Return a loss with its interval as a change, which is negative if something was lost.

    Args:
        loss: Positive if something was lost.
        unit: What they are multiplied by: 100 turns shares into points.
        digits: Decimals shown.
    """
    if not math.isfinite(loss.estimate):
        return "not finite"
    middle, low, high = (_signed(value, unit, digits) for value in (loss.estimate, loss.high, loss.low))
    return f"{middle} [{low}, {high}]"


def _signed(loss: float, unit: float, digits: int) -> str:
    # Rounded before zero is added, which turns minus zero into zero: a loss too small to show has no sign to show.
    return f"{round(-unit * loss, digits) + 0.0:+.{digits}f}"


def write_tables(page: Path, result: FaultsResult) -> None:
    """Replace a pair's tables in a page.

    Raises:
        InputError: The page cannot be read or written, or lacks the marks.
    """
    before, after = require_place(page, result.pair.name)
    write_atomically(page, f"{before}\n\n{markdown_tables(result)}\n\n{after}".encode())


def require_place(page: Path, pair: str) -> tuple[str, str]:
    """Return the text before and after a pair's tables in a page, up to and including the marks around them.

    Raises:
        InputError: The page cannot be read, or lacks the marks.
    """
    first, last = _BEGIN.format(pair), _END.format(pair)
    text = read_text(page, what="page", next_step=f"create it, with {first} and {last} on lines of their own")
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise InputError(
            "the page has no place for the tables",
            file=page,
            key="--write",
            expected=f"{first} and {last}",
            next_step="put both marks into the page where the tables belong",
        )
    return before + begin, end + after
