"""The power of a gate, as a table and as a plot."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.commands.power import PowerTable
from harness.errors import InputError
from harness.files import replacing

__all__ = ["draw_power", "power_report", "require_drawable"]

_FORMATS = (".png", ".svg", ".pdf")


def power_report(result: PowerTable, name: str) -> Group:
    """Return the power by drop and number of prompts, the smallest drop found, and the prompts needed for each."""
    plan = result.plan
    own = len(plan.recorded)
    counts = sorted({cell.prompts for cell in result.cells})
    table = Table(box=None, pad_edge=False)
    table.add_column("drop", justify="right")
    for count in counts:
        table.add_column(f"{count} prompts", justify="right")
    cells = {(cell.drop, cell.prompts): cell for cell in result.cells}
    for drop in sorted({cell.drop for cell in result.cells}):
        row = [cells[drop, count] for count in counts]
        table.add_row(_points(drop), *(f"{100 * cell.power:.1f}±{100 * cell.standard_error:.1f} %" for cell in row))
    lines: list[RenderableType] = [
        Text(
            f"{name}: share of {plan.simulations} simulated comparisons that the gate calls a regression "
            f"(alpha {plan.alpha:g}, margin {_points(plan.margin)}, floor {plan.floor:.0%})"
        ),
        table,
        Text(""),
    ]
    sure = f"{result.power:.0%}" if round(100 * result.power, 6).is_integer() else f"{result.power:.2%}"
    lines.append(
        Text(
            f"smallest drop found in {sure} with the golden's {own} prompts: "
            + (_points(result.smallest) if result.smallest is not None else "none of these")
        )
    )
    lines += [
        Text(f"prompts that find a drop of {_points(drop)} in {sure}: " + _needed(count, within=drop < plan.margin))
        for drop, count in result.needed.items()
    ]
    return Group(*lines)


def _needed(count: int | None, *, within: bool) -> str:
    if within:
        return "none, because it is within the margin"
    return "more than the simulation's limit" if count is None else f"about {count}"


def _points(share: float) -> str:
    return f"{100 * share:.3g} points"


def require_drawable(file: Path) -> None:
    """Refuse a plot that cannot be drawn, before anything is simulated.

    Raises:
        InputError: The file's suffix is not supported, or matplotlib is not installed.
    """
    if file.suffix.lower() not in _FORMATS:
        raise InputError(
            "the file's suffix is not supported", key="--plot", found=file.name, expected=" or ".join(_FORMATS)
        )
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError(
            "the plot requires matplotlib, which is not installed",
            key="--plot",
            next_step='python -m pip install "acceptance-harness[plot]"',
        )


def draw_power(result: PowerTable, name: str, file: Path) -> None:
    """Draw power against drop, one line for each number of prompts.

    Raises:
        InputError: The file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for count in sorted({cell.prompts for cell in result.cells}):
        cells = sorted((cell for cell in result.cells if cell.prompts == count), key=lambda cell: cell.drop)
        axes.errorbar(
            [100 * cell.drop for cell in cells],
            [100 * cell.power for cell in cells],
            yerr=[100 * cell.standard_error for cell in cells],
            marker="o",
            capsize=3,
            label=f"{count} prompts",
        )
    axes.axhline(100 * result.power, color="grey", linestyle=":", linewidth=1)
    axes.set_xlabel("drop of the acceptance rate, points")
    axes.set_ylabel("called a regression, %")
    axes.set_ylim(-3, 103)
    axes.set_title(f"{name}: drops that the gate finds at alpha {result.plan.alpha:g}")
    axes.legend()
    with replacing(file) as part:
        figure.savefig(part, format=file.suffix[1:].lower())
