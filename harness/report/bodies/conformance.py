"""What `harness conformance` prints with `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.report.bodies.base import Body

if TYPE_CHECKING:
    from harness.conformance.matrix import ClassReport, Matrix, Row

__all__ = ["AskedBody", "ClassBody", "ConformanceBody", "ReleaseBody", "conformance_body"]


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
