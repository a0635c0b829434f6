"""The conformance matrix: every class that captures for EAGLE-3, asked for every list of ids, against the facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.version import Version

from harness.conformance.asked import NUM_LAYERS, AskedIds, asked_lists
from harness.errors import InputError
from harness.facts.known import KnownFault, find_known, not_judged
from harness.facts.layer_ids import find_convention, read_ids
from harness.facts.reading.setters import CaptureOutcome, SetterReading, run_setter
from harness.facts.reading.sources import SETTER, ModelClass, SglangSources
from harness.facts.sglang import LAST, shared_class

__all__ = [
    "AGREES",
    "DIFFERS",
    "GONE",
    "KNOWN_DIFFERENCE",
    "NOT_JUDGED",
    "NO_FACTS",
    "RED",
    "ClassReport",
    "Facts",
    "ForwardAnswer",
    "Forwards",
    "Matrix",
    "Row",
    "build_matrix",
    "find_facts",
    "judge",
    "missing_facts",
]

AGREES = "agrees"
DIFFERS = "differs"
KNOWN_DIFFERENCE = "differs: known"
GONE = "known difference is gone"
NO_FACTS = "no facts"
NOT_JUDGED = "not judged"
RED = (DIFFERS, GONE, NO_FACTS)
"""The verdicts that are an error of SGLang or of the facts."""

RAN_WHOLE = "ran end to end"
RAN_FORWARD = "ran forward"
SETTER_ONLY = "setter only"
_BEST_FIRST = (RAN_WHOLE, RAN_FORWARD, SETTER_ONLY)


@dataclass(frozen=True)
class ForwardAnswer:
    """The outcomes of running the real class.

    Attributes:
        outcomes: The states that a forward passed on, by the asked list's name.
        reason: Why some or all outcomes are missing; `None` if none is.
        whole: The states that reached a draft in a whole engine, by the asked list's name.
    """

    outcomes: Mapping[str, CaptureOutcome]
    reason: str | None = None
    whole: Mapping[str, CaptureOutcome] = field(default_factory=dict)

    def by_strength(self, name: str, reading: CaptureOutcome | None) -> list[tuple[str, CaptureOutcome]]:
        """Return each outcome for a list with how it was obtained, the strongest evidence first."""
        found = ((RAN_WHOLE, self.whole.get(name)), (RAN_FORWARD, self.outcomes.get(name)))
        ran = [(how, outcome) for how, outcome in found if outcome is not None]
        if ran or reading is None:
            return ran
        return [(SETTER_ONLY, reading)]


# From an architecture and the lists to the real class's answer.
Forwards = Callable[[str, Sequence[AskedIds]], ForwardAnswer]


@dataclass(frozen=True)
class Facts:
    """The facts about one list, without known faults.

    Attributes:
        boundaries: The boundaries captured by the rule; `None` if the ids are refused.
        lost: The losses of the rule, in words.
        refused: Why the ids are refused.
        meant: The boundaries that the rule gives to ids that are refused.
        num_layers: The target's number of decoder blocks, N.
    """

    boundaries: tuple[int, ...] | None
    lost: tuple[str, ...] = ()
    refused: str | None = None
    meant: tuple[int, ...] = ()
    num_layers: int = NUM_LAYERS

    def agrees(self, outcome: CaptureOutcome) -> bool:
        """Whether SGLang did what the facts say.

        Ids that the facts refuse must not all have been captured, and those that were must follow the rule. If the
        facts say that something is lost, SGLang may lose it silently or raise: either way it is not captured.
        """
        if self.boundaries is None:
            served = set(outcome.boundaries or ())
            # Python counts a negative index from the end: such a flag is set on one of the last layers.
            wrapped = {boundary + self.num_layers for boundary in self.meant if boundary < 0}
            return outcome.boundaries is None or (not served >= set(self.meant) and served <= {*self.meant, *wrapped})
        if outcome.boundaries is None:
            return bool(self.lost)
        return outcome.boundaries == self.boundaries


@dataclass(frozen=True)
class Row:
    """One class asked for one list.

    Attributes:
        asked: The list of layer ids.
        outcome: The states that SGLang captured.
        obtained: `ran end to end`, `ran forward` or `setter only`.
        facts: The facts about the list.
        verdict: `AGREES`, `DIFFERS` or `KNOWN_DIFFERENCE`.
    """

    asked: AskedIds
    outcome: CaptureOutcome
    obtained: str
    facts: Facts
    verdict: str


@dataclass(frozen=True)
class ClassReport:
    """One class.

    Attributes:
        architecture: Its name, by which a target's config names it.
        file: Its model file.
        setter: File and class of the setter that it has.
        reading: The setter's first run: the marks that it sets, and where.
        obtained: The strongest evidence of any row.
        reason: Why its forward did not run, or why it is not judged; `None` if it ran and is judged.
        rows: One row per list.
        verdict: The worst verdict of any row, or one about the class as a whole.
        evidence: The effect of the known fault that it shows, or should show, and how it is known.
    """

    architecture: str
    file: str
    setter: str
    reading: SetterReading
    obtained: str
    reason: str | None
    rows: tuple[Row, ...]
    verdict: str
    evidence: str | None = None


@dataclass(frozen=True)
class Matrix:
    """A release's matrix.

    Attributes:
        version: The release.
        judged_as: The release whose facts it is compared with: the newest known if the release is newer.
        origin: Where its files were read.
        num_layers: Number of blocks N of the target that was asked.
        classes: One report per class.
    """

    version: str
    judged_as: str
    origin: str
    num_layers: int
    classes: tuple[ClassReport, ...]

    @property
    def red(self) -> list[ClassReport]:
        """The classes whose verdict is an error."""
        return [entry for entry in self.classes if entry.verdict in RED]

    @property
    def verdict_counts(self) -> dict[str, int]:
        """Number of classes by verdict."""
        return dict(Counter(entry.verdict for entry in self.classes))

    @property
    def obtained_counts(self) -> dict[str, int]:
        """Number of judged classes by how their answers were obtained."""
        return dict(Counter(entry.obtained for entry in self.classes if entry.verdict != NOT_JUDGED))


def build_matrix(
    sources: SglangSources,
    *,
    forwards: Forwards | None = None,
    only: Sequence[str] = (),
    num_layers: int = NUM_LAYERS,
    tell: Callable[[str], None] = lambda _text: None,
) -> Matrix:
    """Ask every class of a release for every list.

    Args:
        sources: The release's model files.
        forwards: Runs the real classes; `None` for the setters alone.
        only: Architectures to ask; all if empty.
        num_layers: Number of blocks N of the target that is asked.
        tell: Called with each class before it is asked.

    Raises:
        InputError: `only` names a class that does not capture.
    """
    judged_as = min(sources.version, LAST, key=Version)
    found = {cls.name: cls for cls in sources.capturing_classes()}
    unknown = [name for name in only if name not in found]
    if unknown:
        raise InputError(
            "this release does not have such a class that captures for EAGLE-3",
            file=sources.origin,
            key="--only",
            found=", ".join(unknown),
            expected=", ".join(found),
        )
    asked = asked_lists(num_layers)
    classes = []
    for name, cls in found.items():
        if not only or name in only:
            tell(f"sglang {sources.version}: {name}")
            classes.append(_ask_class(sources, cls, judged_as, asked, num_layers, forwards))
    return Matrix(sources.version, judged_as, sources.origin, num_layers, tuple(classes))


def _ask_class(
    sources: SglangSources,
    cls: ModelClass,
    version: str,
    asked: Sequence[AskedIds],
    num_layers: int,
    forwards: Forwards | None,
) -> ClassReport:
    readings = {entry.name: run_setter(sources, cls, entry.ids, num_layers) for entry in asked}
    first = readings[asked[0].name]
    setter = sources.find_method(cls, SETTER)
    assert setter is not None
    named = f"{setter[0].module}.py: {setter[0].name}"

    def report(verdict: str, reason: str | None, rows: Sequence[Row] = (), evidence: str | None = None) -> ClassReport:
        obtained = min((row.obtained for row in rows), key=_BEST_FIRST.index, default=SETTER_ONLY)
        file = f"{cls.module}.py"
        return ClassReport(cls.name, file, named, first, obtained, reason, tuple(rows), verdict, evidence)

    why = not_judged(cls.name)
    if why is not None:
        return report(NOT_JUDGED, why)
    missing = missing_facts(cls.name, version)
    if missing is not None:
        return report(NO_FACTS, missing)
    answer = forwards(cls.name, asked) if forwards is not None else ForwardAnswer({})
    known = find_known(cls.name, version)
    rows: list[Row] = []
    for entry in asked:
        reading = readings[entry.name]
        outcomes = answer.by_strength(entry.name, reading.outcome)
        if not outcomes:
            return report(DIFFERS, f"the setter cannot be followed: {reading.not_followed}", rows)
        facts = find_facts(cls.name, version, entry.ids, num_layers)
        judged = [Row(entry, outcome, how, facts, judge(outcome, facts, known)) for how, outcome in outcomes]
        # If a forward and a whole engine disagree, one of them differs from the facts: that one is shown.
        rows.append(next((row for row in judged if row.verdict == DIFFERS), judged[0]))
    verdicts = {row.verdict for row in rows}
    if known is None:
        return report(DIFFERS if DIFFERS in verdicts else AGREES, answer.reason, rows)
    evidence = "; ".join(part for part in (known.effect.text, known.thread, known.evidence) if part)
    verdict = next((one for one in (DIFFERS, KNOWN_DIFFERENCE) if one in verdicts), GONE)
    return report(verdict, answer.reason, rows, evidence)


def judge(outcome: CaptureOutcome, facts: Facts, known: KnownFault | None) -> str:
    """Return `AGREES`, `KNOWN_DIFFERENCE` or `DIFFERS` for an outcome of SGLang, the facts and the known fault."""
    if facts.agrees(outcome):
        return AGREES
    # Of refused ids a loop over layers can still find those that mean a state.
    ruled = facts.boundaries
    if ruled is None:
        ruled = tuple(sorted({boundary for boundary in facts.meant if 0 <= boundary <= facts.num_layers}))
    if known is not None and outcome.boundaries == known.effect.captures(ruled):
        return KNOWN_DIFFERENCE
    return DIFFERS


def missing_facts(architecture: str, version: str) -> str | None:
    """Return why the facts do not cover a class, `None` if they have a rule for it."""
    if shared_class(architecture) is None:
        return "harness.facts.sglang does not have a rule for this architecture: read the setter and add it"
    try:
        find_convention(f"sglang=={version}", architecture=architecture)
    except InputError as error:
        return f"{error.problem} (facts know {error.expected}): read the setter and add a row"
    return None


def find_facts(architecture: str, version: str, ids: Sequence[int] | None, num_layers: int) -> Facts:
    """Return the facts about layer ids for a class of a release.

    Args:
        architecture: A class for which `missing_facts` is `None`.
        version: The release.
        ids: The layer ids, `None` for SGLang's default.
        num_layers: The target's number of decoder blocks, N.
    """
    convention = f"sglang=={version}"
    try:
        reading = read_ids(ids, convention, num_layers=num_layers, architecture=architecture)
    except InputError as error:
        rule = find_convention(convention, architecture=architecture).rule
        offset = rule.offset(ids or (), num_layers)
        meant = tuple(value + offset for value in ids or ())
        return Facts(None, refused=error.problem, meant=meant, num_layers=num_layers)
    return Facts(reading.boundaries, reading.lost)
