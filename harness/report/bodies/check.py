"""What `harness check` prints with `--json`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
from harness.report.bodies.base import Body
from harness.report.bodies.measure import MeasuredBody, measured_body

if TYPE_CHECKING:
    from harness.commands.check import CheckResult

__all__ = [
    "AcceptanceAnswer",
    "AnswerBody",
    "CheckBody",
    "ContractAnswer",
    "DetectorsBody",
    "LikelihoodAnswer",
    "LosslessAnswer",
    "ProposalsAnswer",
    "StagesAnswer",
    "SumsAnswer",
    "TargetAnswer",
    "check_body",
]


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
        verdict: The verdict over all detectors: what is proven, else what is undecided, else that it passes.
        undecided: The detectors that apply and could not decide.
        strict: Whether a change that costs no acceptance fails; if not, it is a warning.
        exit_code: The status with which the command ends.
    """

    verdict: State
    undecided: tuple[str, ...]
    strict: bool
    exit_code: int


# Fields come from the last base first: the version, the verdict, what was measured, and what it was compared with.
@dataclass(frozen=True)
class CheckBody(MeasuredBody, _Judged, Body):
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
        **vars(measured_body(result.measurement, result.notes)),
        verdict=result.verdict,
        undecided=result.undecided,
        strict=result.pair.settings.gate.strict,
        exit_code=result.exit_code,
        detectors=_detectors(result.findings),
        drop=result.drop,
        first_stage=result.attribution,
        golden=str(result.golden.file),
    )
