"""What `harness power` prints with `--json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.report.bodies.base import Body

if TYPE_CHECKING:
    from harness.commands.power import PowerTable

__all__ = ["CellBody", "NeededBody", "PowerBody", "power_body"]


@dataclass(frozen=True)
class CellBody:
    """The gate's verdicts on one drop, with one number of prompts.

    Attributes:
        drop: The drop planted, as a share.
        prompts: Number of prompts in each simulated comparison.
        simulations: Comparisons simulated.
        power: The share of them that were called a regression.
        standard_error: The standard error of the power, by the number of simulations.
        inconclusive: The share of them that were inconclusive.
    """

    drop: float
    prompts: int
    simulations: int
    power: float
    standard_error: float
    inconclusive: float


@dataclass(frozen=True)
class NeededBody:
    """How many prompts find a drop.

    Attributes:
        drop: The drop, as a share.
        prompts_needed: Number of prompts that find it with the power asked for; `None` if no number up to the limit
            does, or if the drop is within the margin.
    """

    drop: float
    prompts_needed: int | None


@dataclass(frozen=True)
class PowerBody(Body):
    """`harness power`: which drops a pair's gate can see.

    Attributes:
        pair: The pair's name.
        golden: The golden's file.
        prompts: Number of prompts that the golden has.
        alpha: The chance of a false alarm of the whole verdict.
        margin: The drop of the rate that does not matter.
        floor: The rate that must not be fallen below.
        power: The power that counts as sure.
        smallest_drop: The smallest drop found with that power on the golden's own prompts; `None` if even the greatest
            one asked about is not.
        by_drop: How many prompts each drop needs.
        cells: Every drop with every number of prompts.
    """

    pair: str
    golden: str
    prompts: int
    alpha: float
    margin: float
    floor: float
    power: float
    smallest_drop: float | None
    by_drop: tuple[NeededBody, ...]
    cells: tuple[CellBody, ...]


def power_body(table: PowerTable, *, pair: str, golden: str) -> PowerBody:
    """Return what `harness power --json` prints."""
    plan = table.plan
    return PowerBody(
        pair=pair,
        golden=golden,
        prompts=len(plan.recorded),
        alpha=plan.alpha,
        margin=plan.margin,
        floor=plan.floor,
        power=table.power,
        smallest_drop=table.smallest,
        by_drop=tuple(NeededBody(drop, count) for drop, count in table.needed.items()),
        cells=tuple(
            CellBody(
                cell.drop,
                cell.prompts,
                cell.simulations,
                cell.power,
                cell.standard_error,
                cell.undecided / cell.simulations,
            )
            for cell in table.cells
        ),
    )
