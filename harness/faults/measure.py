"""Measuring faults: what each costs, and which detectors see it.

The target runs once over prompts and reference continuations, and keeps every boundary that any fault reads. A wrong
wire is then a run of the draft alone, judged against the golden as `harness check` judges a run. Only faults of the
capture and of the target itself need another run of the target.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from harness.counts.acceptance import counts_of, measure_acceptance
from harness.counts.run import PromptRecord
from harness.counts.statistics import PairedInterval
from harness.detectors import Context, Findings, State, run_detectors
from harness.detectors.acceptance import AcceptanceFigures
from harness.detectors.proposals import ProposalsFigures
from harness.detectors.target import TargetFigures
from harness.engines.base import Progress
from harness.engines.reference.loaded import load
from harness.engines.reference.replay import Seen, StateFilter, draft_on, see
from harness.engines.reference.threads import suitable_threads
from harness.engines.shared.decoded import as_run
from harness.faults.wirings import (
    BoundaryFault,
    CaptureFault,
    DraftFault,
    Fault,
    StateFault,
    TargetFault,
    as_list,
    target_faults,
    wrong_wires,
)
from harness.golden.store import Golden
from harness.models.draft import Eagle3Draft
from harness.models.target import Target
from harness.pair.pair import Pair
from harness.pair.prompts import Prompt

__all__ = ["FaultResult", "MeasuredFaults", "measure_faults"]


@dataclass(frozen=True)
class FaultResult:
    """A pair as it was measured, right or with one fault.

    Attributes:
        name: `right`, or the fault's name.
        what: The boundaries, or what is wrong in words.
        rate: Acceptance rate on the reference continuations.
        findings: Each detector's answer.
        fault: `None` for the right wiring.
    """

    name: str
    what: str
    rate: float
    findings: Findings
    fault: Fault | None = None

    @property
    def seen_by(self) -> list[str]:
        """The detectors that found a change or a regression."""
        return [name for name, one in self.findings.items() if one.state in (State.CHANGED, State.REGRESSION)]

    @property
    def drop(self) -> PairedInterval:
        """The drop of the acceptance rate, as a share."""
        figures = self.findings.acceptance.measured
        # Replay counts each prompt's rounds, so the sums of an engine that does not are not met here.
        assert isinstance(figures, AcceptanceFigures)
        return figures.drop

    @property
    def loss(self) -> PairedInterval:
        """The loss of log-probability, in nats per token."""
        return self.findings.likelihood.measured.loss

    @property
    def proposals(self) -> ProposalsFigures:
        """The counts of the proposals detector."""
        return self.findings.proposals.measured

    @property
    def target(self) -> TargetFigures:
        """The counts of the target detector."""
        return self.findings.target.measured


@dataclass(frozen=True)
class MeasuredFaults:
    """A pair with every fault that it can have.

    Attributes:
        right: The pair as it is.
        wrong: With each wrong wire.
        drift: The right wiring on the target in other numbers.
        left_out: Names of the faults that the pair cannot have, or that would change nothing in it.
    """

    right: FaultResult
    wrong: tuple[FaultResult, ...]
    drift: tuple[FaultResult, ...]
    left_out: tuple[str, ...]


def measure_faults(
    pair: Pair, golden: Golden, prompts: Sequence[Prompt], other: tuple[int, ...] | None, progress: Progress
) -> MeasuredFaults:
    """Measure a pair with every fault.

    Args:
        pair: Run by the reference engine, whatever its own is.
        golden: Must be comparable with the pair.
        prompts: Those of the golden.
        other: The boundaries that an incident serves; `None` leaves the incident out.
        progress: Told of each run of the target, and of each wrong wire.
    """
    with suitable_threads(pair):
        return _Bench(pair, golden, prompts, progress).measure(other)


class _Bench:
    """A loaded pair with its prompts and reference continuations, on which one fault after the other is tried."""

    def __init__(self, pair: Pair, golden: Golden, prompts: Sequence[Prompt], progress: Progress) -> None:
        self.pair, self.golden, self.prompts, self.progress = pair, golden, prompts, progress
        self.loaded = load(pair)
        self.continuations = [self.loaded.limits.cut(golden.continuation(prompt.id)) for prompt in prompts]

    def measure(self, other: tuple[int, ...] | None) -> MeasuredFaults:
        """Measure every fault; see `measure_faults`."""
        right, target = self.pair.boundaries, self.loaded.target
        faults = wrong_wires(right, target.spec.num_layers, other)
        moved = [boundary for fault in faults if isinstance(fault, BoundaryFault) for boundary in fault.boundaries]
        seen = self._see(target, [*right, *moved], "target")
        as_it_is = self._judge(seen)
        self.progress.begin("wrong wires", len(faults))
        wrong = []
        for fault in faults:
            wrong.append(self._try(fault, seen))
            self.progress.advance(1)
        drifts = target_faults()
        drift = [self._try_target(fault) for fault in drifts]
        tried = zip((*faults, *drifts), (*wrong, *drift), strict=True)
        return MeasuredFaults(
            as_it_is,
            tuple(result for result in wrong if result is not None),
            tuple(result for result in drift if result is not None),
            tuple(fault.name for fault, result in tried if result is None),
        )

    def _try(self, fault: Fault, seen: Sequence[Seen]) -> FaultResult | None:
        """Measure a wrong wire; `None` if the pair cannot have it."""
        if isinstance(fault, BoundaryFault):
            return self._judge(seen, fault, boundaries=fault.boundaries)
        if isinstance(fault, StateFault):
            change = fault.plant(self.loaded)
            return None if change is None else self._judge(seen, fault, state_filter=change)
        if isinstance(fault, DraftFault):
            draft = fault.plant(self.loaded)
            return None if draft is None else self._judge(seen, fault, draft=draft)
        assert isinstance(fault, CaptureFault)
        capture = fault.plant(self.loaded)
        if capture is None:
            return None
        with capture as captured:
            batches = self._batches(self.loaded.target, self.pair.boundaries)
            # `captured` is of the latest batch only: each is taken before the next runs. What it lacks stays right.
            taken = [replace(batch, states={**batch.states, **captured}) for batch in batches]
        return self._judge(taken, fault)

    def _try_target(self, fault: TargetFault) -> FaultResult | None:
        target = fault.plant(self.loaded)
        if target is None:
            return None
        seen = self._see(target, self.pair.boundaries, f"target in {fault.name}")
        return self._judge(seen, fault)

    def _see(self, target: Target, boundaries: Sequence[int], what: str) -> list[Seen]:
        """Run a target over prompts and continuations."""
        self.progress.begin(what, len(self.prompts))
        result = []
        for seen in self._batches(target, boundaries):
            result.append(seen)
            self.progress.advance(len(seen.rows))
        return result

    def _batches(self, target: Target, boundaries: Sequence[int]) -> Iterator[Seen]:
        return see(target, boundaries, self.prompts, self.continuations, self.loaded.limits)

    def _judge(
        self,
        seen: Sequence[Seen],
        fault: Fault | None = None,
        *,
        boundaries: tuple[int, ...] | None = None,
        draft: Eagle3Draft | None = None,
        state_filter: StateFilter | None = None,
    ) -> FaultResult:
        """Run a draft on what the target computed, and judge it against the golden; unsaid is the pair's own."""
        wires = self.pair.boundaries if boundaries is None else boundaries
        records: dict[int, PromptRecord] = {}
        for batch in seen:
            made = draft_on(draft or self.loaded.draft, batch, wires, self.loaded.limits, state_filter)
            records.update(zip(batch.rows, made, strict=True))
        ordered = [records[row] for row in range(len(self.prompts))]
        findings = run_detectors(Context(self.pair, as_run(self.pair, ordered, "reference:replay", 0.0), self.golden))
        rate = measure_acceptance(map(counts_of, ordered)).rate
        # A golden has rounds, and these are its prompts and continuations.
        assert rate is not None
        name, what = ("right", as_list(wires)) if fault is None else (fault.name, fault.what)
        return FaultResult(name, what, rate, findings, fault)
