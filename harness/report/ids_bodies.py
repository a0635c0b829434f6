"""What `trace`, `layers`, `translate` and `conformance` print with `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.counts.statistics import Unbounded
from harness.report.body import Body

if TYPE_CHECKING:
    from harness.commands.layers import EngineLayers, LayersReport
    from harness.commands.trace import Trace
    from harness.commands.translate import Translation
    from harness.conformance.matrix import ClassReport, Matrix, Row
    from harness.facts.known import KnownFault
    from harness.facts.layer_ids import Reading

__all__ = [
    "ConformanceBody",
    "LayersBody",
    "TraceBody",
    "TranslateBody",
    "conformance_body",
    "layers_body",
    "trace_body",
    "translate_body",
]

# The value of a step: a mapping by names of its own, or ids, or states (`None` is not any boundary's), or nothing. The
# norm of a state may not be finite.
StepValue = Mapping[str, bool | Unbounded | str | Sequence[int | Unbounded] | None] | Sequence[int | None] | None


@dataclass(frozen=True)
class StepBody:
    """One step of the hidden-state pipeline.

    Attributes:
        name: The step.
        value: Its value: ids or boundaries, or an object of sizes, flags or figures of a tensor.
        source: Where the value comes from.
        ok: Whether it agrees with the steps before it; `None` if there is nothing to agree with.
        note: What is wrong, or worth knowing.
    """

    name: str
    value: StepValue
    source: str
    ok: bool | None
    note: str | None


@dataclass(frozen=True)
class TraceBody(Body):
    """`harness trace`: a pair's hidden-state pipeline.

    Attributes:
        pair: The pair's name.
        first_wrong: The first step that does not agree with those before it; `None` if all agree.
        steps: The steps, in the order in which states pass them.
    """

    pair: str
    first_wrong: str | None
    steps: tuple[StepBody, ...]


def trace_body(trace: Trace) -> TraceBody:
    """Return what `harness trace --json` prints."""
    wrong = trace.first_wrong
    return TraceBody(
        pair=trace.pair,
        first_wrong=None if wrong is None else wrong.name,
        steps=tuple(StepBody(step.name, step.value, step.source, step.ok, step.note) for step in trace.steps),
    )


@dataclass(frozen=True)
class FaultBody:
    """A known fault of released engines.

    Attributes:
        first: First release that shows it.
        last: Last release read that shows it.
        effect: The states captured instead, in words.
        thread: Its public thread; `None` if none is known.
        evidence: How it is known.
    """

    first: str
    last: str
    effect: str
    thread: str | None
    evidence: str


def _fault(fault: KnownFault | None) -> FaultBody | None:
    if fault is None:
        return None
    return FaultBody(fault.first, fault.last, fault.effect.text, fault.thread, fault.evidence)


@dataclass(frozen=True)
class EngineLayersBody:
    """What one engine or trainer makes of a draft's layer ids.

    Attributes:
        boundaries: The boundaries that its rule gives; `None` if it cannot read the ids.
        captured: The states really captured, `None` for a state that is not any boundary's; differs from `boundaries`
            only by a known fault.
        source: Where its rule was read.
        rule: The rule in words.
        default: Whether the ids are its own default, since the config does not have any.
        lost: The boundaries that the ids mean and that are not captured.
        fault: The known fault of this release by which they are not.
        notes: Why other states are captured than the ids mean, each reason in words.
        reason: Why it cannot read the ids.
        write: The ids by which it would serve the boundaries trained on; `None` if it cannot serve them.
        cannot_say: Why it cannot serve them.
    """

    boundaries: tuple[int, ...] | None
    captured: tuple[int | None, ...] | None
    source: str | None
    rule: str | None
    default: bool | None
    lost: tuple[int, ...]
    fault: FaultBody | None
    notes: tuple[str, ...]
    reason: str | None
    write: tuple[int, ...] | None
    cannot_say: str | None


@dataclass(frozen=True)
class LayersBody(Body):
    """`harness layers`: which boundaries each engine and trainer would use for a draft.

    Attributes:
        draft: The draft's config.
        family: The kind of config.
        ids: The layer ids; `None` if the config does not have any.
        ids_key: The key that they are under.
        trained_as: The convention taken for the writer's.
        assumed: Whether that is only the likeliest writer of this kind of config.
        trained: The boundaries trained on; `None` if a target is needed to know them.
        engines: What each engine and trainer makes of the ids, by convention.
        disagreements: Those that would use other boundaries than were trained on.
    """

    draft: str
    family: str
    ids: tuple[int, ...] | None
    ids_key: str | None
    trained_as: str
    assumed: bool
    trained: tuple[int, ...] | None
    engines: Mapping[str, EngineLayersBody]
    disagreements: tuple[str, ...]


def layers_body(report: LayersReport) -> LayersBody:
    """Return what `harness layers --json` prints."""
    config = report.config
    return LayersBody(
        draft=str(config.file),
        family=config.family.name,
        ids=config.ids,
        ids_key=config.key,
        trained_as=report.trained_as,
        assumed=report.assumed,
        trained=report.trained,
        engines={name: _engine_layers(engine) for name, engine in report.engines.items()},
        disagreements=tuple(report.disagreements),
    )


def _engine_layers(engine: EngineLayers) -> EngineLayersBody:
    reading = engine.reading
    return EngineLayersBody(
        boundaries=None if reading is None else reading.boundaries,
        captured=None if reading is None else reading.captured,
        source=None if reading is None else reading.source,
        rule=None if reading is None else reading.rule,
        default=None if reading is None else reading.defaulted,
        lost=() if reading is None else reading.missing,
        fault=None if reading is None else _fault(reading.fault),
        notes=() if reading is None else reading.remarks,
        reason=engine.reason,
        write=engine.write,
        cannot_say=engine.cannot,
    )


@dataclass(frozen=True)
class ReadingBody:
    """Layer ids in one convention.

    Attributes:
        convention: The convention, with its version.
        ids: The ids, as that convention writes them.
        rule: Its rule in words.
        source: Where the rule was read.
        captured: The states really captured, `None` for a state that is not any boundary's.
        lost: The boundaries that the ids mean and that are not captured.
        fault: The known fault of this release by which they are not.
    """

    convention: str
    ids: tuple[int, ...]
    rule: str
    source: str
    captured: tuple[int | None, ...]
    lost: tuple[int, ...]
    fault: FaultBody | None


@dataclass(frozen=True)
class TranslateBody(Body):
    """`harness translate`: layer ids from one convention to another.

    Attributes:
        boundaries: The boundaries that the ids stand for.
        lost: Those of them that an engine does not capture, by a known fault.
        architecture: The target's architecture.
        layers: The target's number of decoder blocks, N.
        from_: The ids in the convention that they are written in.
        to: The ids in the convention asked for.
        assumed: Conventions named without a version, with the version taken.
        notes: The known faults by which boundaries are lost, in words.
    """

    boundaries: tuple[int, ...]
    lost: tuple[int, ...]
    architecture: str
    layers: int
    from_: ReadingBody
    to: ReadingBody
    assumed: Mapping[str, str]
    notes: tuple[str, ...]


def translate_body(translation: Translation) -> TranslateBody:
    """Return what `harness translate --json` prints."""

    def side(one: Reading) -> ReadingBody:
        return ReadingBody(one.convention, one.ids, one.rule, one.source, one.captured, one.missing, _fault(one.fault))

    return TranslateBody(
        boundaries=translation.read.boundaries,
        lost=translation.lost,
        architecture=translation.architecture,
        layers=translation.num_layers,
        from_=side(translation.read),
        to=side(translation.written),
        assumed=translation.assumed,
        notes=translation.notes,
    )


@dataclass(frozen=True)
class AskedBody:
    """A class of SGLang, asked for one list of layer ids.

    Attributes:
        asked: The list's name.
        ids: The layer ids; `None` for the engine's own default.
        captured: The boundary of each captured tensor, `None` for one that is not a boundary; `None` as a whole if an
            error was raised.
        raised: The error.
        obtained: How that is known: `ran end to end`, `ran forward` or `setter only`.
        facts: The boundaries that the facts say; `None` if they refuse the ids.
        facts_lost: What the facts say is lost of the ids.
        facts_refused: Why the facts refuse the ids.
        verdict: Whether they agree.
    """

    asked: str
    ids: tuple[int, ...] | None
    captured: tuple[int | None, ...] | None
    raised: str | None
    obtained: str
    facts: tuple[int, ...] | None
    facts_lost: tuple[str, ...]
    facts_refused: str | None
    verdict: str


@dataclass(frozen=True)
class ClassBody:
    """One class of SGLang that captures for EAGLE-3.

    Attributes:
        architecture: Its name, by which a target's config names it.
        file: Its model file.
        setter: File and class of the setter that it has.
        decoder: The class whose forward captures.
        setter_sets: What the setter sets.
        forward_tests: What the forward looks at; `None` if that could not be read.
        same_mechanism: Whether the forward looks at what the setter sets.
        obtained: The strongest of `rows`.
        reason: Why its forward did not run, or why it is not judged.
        verdict: The worst of `rows`, or one about the class as a whole.
        evidence: Where the known difference is documented that it shows, or should.
        rows: The class, asked for each list.
    """

    architecture: str
    file: str
    setter: str
    decoder: str | None
    setter_sets: tuple[str, ...]
    forward_tests: tuple[str, ...] | None
    same_mechanism: bool
    obtained: str
    reason: str | None
    verdict: str
    evidence: str | None
    rows: tuple[AskedBody, ...]


@dataclass(frozen=True)
class ReleaseBody:
    """A release of SGLang.

    Attributes:
        sglang: Its version.
        judged_as: The release whose facts it is held against.
        origin: Where its files were read.
        num_layers: Decoder blocks N of the target that was asked.
        verdicts: Number of classes by verdict.
        obtained: Number of judged classes by how their answers were obtained.
        classes: Every class.
    """

    sglang: str
    judged_as: str
    origin: str
    num_layers: int
    verdicts: Mapping[str, int]
    obtained: Mapping[str, int]
    classes: tuple[ClassBody, ...]


@dataclass(frozen=True)
class ConformanceBody(Body):
    """`harness conformance`: what SGLang's classes capture, held against what the harness knows.

    Attributes:
        releases: Each release asked.
        exit_code: The status with which the command ends: 1 if a class does not do what the facts say.
    """

    releases: tuple[ReleaseBody, ...]
    exit_code: int


def conformance_body(matrices: Sequence[Matrix]) -> ConformanceBody:
    """Return what `harness conformance --json` prints."""
    releases = tuple(
        ReleaseBody(
            sglang=matrix.version,
            judged_as=matrix.judged_as,
            origin=matrix.origin,
            num_layers=matrix.num_layers,
            verdicts=matrix.verdict_counts,
            obtained=matrix.obtained_counts,
            classes=tuple(_class(entry) for entry in matrix.classes),
        )
        for matrix in matrices
    )
    return ConformanceBody(releases, int(any(matrix.red for matrix in matrices)))


def _class(entry: ClassReport) -> ClassBody:
    loop = entry.reading.loop
    return ClassBody(
        architecture=entry.architecture,
        file=entry.file,
        setter=entry.setter,
        decoder=entry.reading.decoder,
        setter_sets=tuple(entry.reading.sets),
        forward_tests=None if loop is None else tuple(loop.tests),
        same_mechanism=entry.reading.same_mechanism,
        obtained=entry.obtained,
        reason=entry.reason,
        verdict=entry.verdict,
        evidence=entry.evidence,
        rows=tuple(_asked(row) for row in entry.rows),
    )


def _asked(row: Row) -> AskedBody:
    return AskedBody(
        asked=row.asked.name,
        ids=row.asked.ids,
        captured=row.outcome.boundaries,
        raised=row.outcome.error,
        obtained=row.obtained,
        facts=row.facts.boundaries,
        facts_lost=row.facts.lost,
        facts_refused=row.facts.refused,
        verdict=row.verdict,
    )
