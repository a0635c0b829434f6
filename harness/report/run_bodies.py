"""What `measure`, `check`, `record`, `compare` and `power` print with `--json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.commands.compare import Outcome
from harness.commands.measure import looping
from harness.counts.statistics import PairedInterval
from harness.detectors import Finding, Findings, State
from harness.detectors.acceptance import AcceptanceFigures, SumsFigures
from harness.detectors.attribution import Attribution
from harness.detectors.contract import ContractFigures
from harness.detectors.likelihood import LikelihoodFigures
from harness.detectors.lossless import LosslessFigures
from harness.detectors.proposals import ProposalsFigures
from harness.detectors.stages import StagesFigures
from harness.detectors.target import TargetFigures
from harness.golden.schema import CountedPrompt
from harness.report.body import AcceptanceBody, Body, acceptance_body

if TYPE_CHECKING:
    from harness.commands.check import CheckResult
    from harness.commands.compare import Comparison, Side
    from harness.commands.measure import Measurement
    from harness.commands.power import PowerTable
    from harness.commands.record import RecordResult

__all__ = [
    "CheckBody",
    "CompareBody",
    "MeasureBody",
    "PowerBody",
    "RecordBody",
    "check_body",
    "compare_body",
    "measure_body",
    "power_body",
    "record_body",
]


@dataclass(frozen=True)
class EngineBody:
    """What measured the pair.

    Attributes:
        name: The engine, with its mode, such as `reference:replay`.
        device: `cpu` or `cuda`.
        dtype: The dtype in which target and draft computed.
    """

    name: str
    device: str
    dtype: str


@dataclass(frozen=True)
class _Measured:
    """What every measurement says.

    Attributes:
        pair: The pair's name.
        engine: What measured it.
        boundaries: The boundaries that are captured, in the order of concatenation.
        acceptance: Acceptance over all prompts.
        categories: The same by category of prompts; empty if only sums over all prompts are known.
        loops: Ids of prompts whose continuation repeats itself, which inflates acceptance.
        by_prompt: Each prompt's counts, from which every rate can be worked out again.
        aggregate: Rounds by number of accepted tokens over all prompts, if the engine knows nothing else.
        server: What a server says of itself; `None` if none was asked.
        notes: Remarks that decide nothing.
        seconds: Wall-clock time in seconds, loading included.
    """

    pair: str
    engine: EngineBody
    boundaries: tuple[int, ...]
    acceptance: AcceptanceBody
    categories: Mapping[str, AcceptanceBody]
    loops: tuple[str, ...]
    by_prompt: tuple[CountedPrompt, ...]
    aggregate: tuple[int, ...] | None
    server: Mapping[str, Any] | None
    notes: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class MeasureBody(_Measured, Body):
    """`harness measure`: a pair's rates, without a verdict."""


def _measured(measurement: Measurement, notes: tuple[str, ...]) -> _Measured:
    run = measurement.run
    return _Measured(
        pair=measurement.pair.name,
        engine=EngineBody(run.engine, run.device, run.dtype),
        boundaries=measurement.pair.boundaries,
        acceptance=acceptance_body(measurement.acceptance),
        categories={name: acceptance_body(value) for name, value in measurement.by_category().items()},
        loops=tuple(looping(run.records)),
        by_prompt=tuple(CountedPrompt(**CountedPrompt.row(record)) for record in run.records),
        aggregate=run.aggregate,
        server=dict(run.served) or None,
        notes=notes,
        seconds=round(measurement.seconds, 3),
    )


def measure_body(measurement: Measurement) -> MeasureBody:
    """Return what `harness measure --json` prints."""
    return MeasureBody(**vars(_measured(measurement, measurement.run.notes)))


@dataclass(frozen=True)
class AnswerBody:
    """What every detector says, also one that had nothing to measure.

    Attributes:
        verdict: What it found.
        message: One sentence for a person.
        notes: Remarks that decide nothing.
    """

    verdict: State
    message: str
    notes: tuple[str, ...]


# An answer with the figures of its detector, side by side: the figures are keys of the answer itself.
@dataclass(frozen=True)
class ContractAnswer(ContractFigures, AnswerBody):
    """The wiring that a pair's files ask for."""


@dataclass(frozen=True)
class TargetAnswer(TargetFigures, AnswerBody):
    """The target's own choices along the reference continuations."""


@dataclass(frozen=True)
class LosslessAnswer(LosslessFigures, AnswerBody):
    """What a decoding engine output, judged by the target alone."""


@dataclass(frozen=True)
class StagesAnswer(StagesFigures, AnswerBody):
    """Every stage between the target's embedding and the draft's logits, compared with the golden."""


@dataclass(frozen=True)
class ProposalsAnswer(ProposalsFigures, AnswerBody):
    """The draft's proposals next to the golden's, position by position."""


@dataclass(frozen=True)
class LikelihoodAnswer(LikelihoodFigures, AnswerBody):
    """The draft's log-probability of the reference continuations, next to the golden's."""


@dataclass(frozen=True)
class AcceptanceAnswer(AcceptanceFigures, AnswerBody):
    """The acceptance rate next to the golden's and to the floor."""


@dataclass(frozen=True)
class SumsAnswer(SumsFigures, AnswerBody):
    """The acceptance rate of an engine that knows only sums over all prompts, next to the floor."""


@dataclass(frozen=True)
class DetectorsBody:
    """Each detector's answer, in the order of the pipeline; without figures if it had nothing to measure."""

    contract: ContractAnswer | AnswerBody
    target: TargetAnswer | AnswerBody
    lossless: LosslessAnswer | AnswerBody
    stages: StagesAnswer | AnswerBody
    proposals: ProposalsAnswer | AnswerBody
    likelihood: LikelihoodAnswer | AnswerBody
    acceptance: AcceptanceAnswer | SumsAnswer | AnswerBody


_ANSWERS: dict[type, Callable[..., AnswerBody]] = {
    answer.__bases__[0]: answer
    for answer in (
        ContractAnswer,
        TargetAnswer,
        LosslessAnswer,
        StagesAnswer,
        ProposalsAnswer,
        LikelihoodAnswer,
        AcceptanceAnswer,
        SumsAnswer,
    )
}


def _answer(finding: Finding[Any]) -> AnswerBody:
    figures = finding.figures
    answer = _ANSWERS[type(figures)] if figures is not None else AnswerBody
    more: dict[str, Any] = {} if figures is None else vars(figures)
    return answer(verdict=finding.state, message=finding.message, notes=finding.notes, **more)


def _detectors(findings: Findings) -> DetectorsBody:
    answers: dict[str, Any] = {name: _answer(finding) for name, finding in findings.items()}
    return DetectorsBody(**answers)


@dataclass(frozen=True)
class _Judged:
    """A verdict.

    Attributes:
        verdict: The verdict over all detectors.
    """

    verdict: State


# Fields come from the last base first: the version, the verdict, what was measured, and what it was compared with.
@dataclass(frozen=True)
class CheckBody(_Measured, _Judged, Body):
    """`harness check`: a pair measured and gated against its golden.

    Attributes:
        detectors: Each detector's answer.
        drop: The drop of the acceptance rate, paired by prompt; `None` if it was not measured.
        first_stage: The first stage at which the run differs from the golden; `None` if it does not, or if the engine
            cannot know.
        golden: The golden's file.
    """

    detectors: DetectorsBody
    drop: PairedInterval | None
    first_stage: Attribution | None
    golden: str


def check_body(result: CheckResult) -> CheckBody:
    """Return what `harness check --json` prints."""
    return CheckBody(
        **vars(_measured(result.measurement, result.notes)),
        verdict=result.verdict,
        detectors=_detectors(result.findings),
        drop=result.drop,
        first_stage=result.attribution,
        golden=str(result.golden.file),
    )


@dataclass(frozen=True)
class RecordBody(_Measured, Body):
    """`harness record`: a pair measured and written as its golden.

    Attributes:
        golden: The golden's file.
        replaced: Whether it took the place of an earlier one.
    """

    golden: str
    replaced: bool


def record_body(result: RecordResult) -> RecordBody:
    """Return what `harness record --json` prints."""
    measured = _measured(result.measurement, result.measurement.run.notes)
    return RecordBody(**vars(measured), golden=str(result.file), replaced=result.replaced)


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
