"""What `harness compare` prints with `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.commands.compare import Outcome
from harness.counts.statistics import PairedInterval
from harness.report.bodies.base import AcceptanceBody, Body, acceptance_body

if TYPE_CHECKING:
    from harness.commands.compare import Comparison, Side

__all__ = ["CompareBody", "SideBody", "compare_body"]


@dataclass(frozen=True)
class SideBody:
    """One side of a comparison.

    Attributes:
        label: The pair's name and what measured it.
        acceptance: Acceptance over the prompts that both sides measured.
    """

    label: str
    acceptance: AcceptanceBody


@dataclass(frozen=True)
class CompareBody(Body):
    """`harness compare`: two pairs, engines or results against each other.

    Attributes:
        outcome: How B compares with A, by the acceptance rate.
        better: The label of the better side; `None` if neither is.
        a: The first side.
        b: The second side.
        drops: How far each figure (`rate`, `length` in tokens a round, `u0`, `c0`, `t0` …) drops from A to B, paired by
            prompt; `None` if a side did not measure it.
        margin: The drop of the rate that does not matter.
        prompts: Number of prompts that both sides measured.
        prompts_needed: About how many prompts would decide an undecided comparison; `None` if it is decided, or if no
            number would decide it.
    """

    outcome: Outcome
    better: str | None
    a: SideBody
    b: SideBody
    drops: Mapping[str, PairedInterval | None]
    margin: float
    prompts: int
    prompts_needed: int | None


def compare_body(result: Comparison) -> CompareBody:
    """Return what `harness compare --json` prints."""

    def side(one: Side) -> SideBody:
        return SideBody(one.label, acceptance_body(result.acceptance(one)))

    return CompareBody(
        outcome=result.outcome,
        better=result.better,
        a=side(result.first),
        b=side(result.second),
        drops=result.drops,
        margin=result.margin,
        prompts=len(result.prompts),
        prompts_needed=result.needed,
    )
