"""What `harness faults` prints with `--json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.counts.statistics import PairedInterval
from harness.detectors.proposals import ProposalsFigures
from harness.detectors.target import TargetFigures
from harness.faults.catalogue import CATALOGUE, CatalogueEntry
from harness.report.bodies.base import Body

if TYPE_CHECKING:
    from harness.commands.faults import FaultsResult
    from harness.faults.measure import FaultResult

__all__ = ["FaultsBody", "MeasuredFaultBody", "faults_body"]


@dataclass(frozen=True)
class MeasuredFaultBody:
    """A pair as it was measured, right or with one fault.

    Attributes:
        name: `right`, or the fault's name.
        what: The boundaries, or what is wrong in words.
        kind: Where it lives: `boundaries`, `states`, `capture`, `draft` or `target`; `None` for the right wiring.
        catalogue: The entries of the fault catalogue that it is.
        rate: Acceptance rate on the reference continuations, 0 to 1.
        drop: The drop of the acceptance rate, as a share.
        loss: The loss of log-probability, in nats per token.
        proposals: The counts of the proposals detector.
        target: The counts of the target detector.
        seen_by: The detectors that found a change or a regression.
    """

    name: str
    what: str
    kind: str | None
    catalogue: tuple[CatalogueEntry, ...]
    rate: float
    drop: PairedInterval
    loss: PairedInterval
    proposals: ProposalsFigures
    target: TargetFigures
    seen_by: tuple[str, ...]


@dataclass(frozen=True)
class FaultsBody(Body):
    """`harness faults`: what each wrong wire of a pair costs, and which detectors see it.

    Attributes:
        pair: The pair's name.
        golden: The golden that judged.
        boundaries: The right boundaries, in the order of concatenation.
        right: The pair as it is.
        faults: The pair with each wrong wire.
        drift: The right wiring on the target in other numbers, which decides nothing.
        left_out: Names of the faults that the pair cannot have, or that would change nothing in it.
        unseen: Names of the wrong wires that no detector sees.
        seconds: Wall-clock time in seconds, loading included.
    """

    pair: str
    golden: str
    boundaries: tuple[int, ...]
    right: MeasuredFaultBody
    faults: tuple[MeasuredFaultBody, ...]
    drift: tuple[MeasuredFaultBody, ...]
    left_out: tuple[str, ...]
    unseen: tuple[str, ...]
    seconds: float


def faults_body(result: FaultsResult) -> FaultsBody:
    """Return what `harness faults --json` prints."""
    measured = result.measured
    return FaultsBody(
        pair=result.pair.name,
        golden=str(result.golden.file),
        boundaries=result.pair.boundaries,
        right=_measured(measured.right),
        faults=tuple(map(_measured, measured.wrong)),
        drift=tuple(map(_measured, measured.drift)),
        left_out=measured.left_out,
        unseen=tuple(result.unseen),
        seconds=round(result.seconds, 3),
    )


def _measured(one: FaultResult) -> MeasuredFaultBody:
    fault = one.fault
    return MeasuredFaultBody(
        name=one.name,
        what=one.what,
        kind=None if fault is None else fault.kind,
        catalogue=() if fault is None else tuple(CATALOGUE[entry] for entry in fault.catalogue),
        rate=one.rate,
        drop=one.drop,
        loss=one.loss,
        proposals=one.proposals,
        target=one.target,
        seen_by=tuple(one.seen_by),
    )
