"""What `golden show`, `diff`, `verify` and `orphans` print with `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.golden.schema import (
    Blindness,
    GoldenPrompt,
    HistoryEntry,
    LeftOutPrompt,
    Noise,
    TargetShape,
    Totals,
    WiringEntry,
)
from harness.report.bodies.base import Body, StandardErrorsBody, acceptance_body

if TYPE_CHECKING:
    from harness.golden.difference import Difference
    from harness.golden.orphans import OrphanReport
    from harness.golden.store import Golden

__all__ = [
    "DiffBody",
    "OrphansBody",
    "ShowBody",
    "VerifyBody",
    "diff_body",
    "orphans_body",
    "show_body",
    "verify_body",
]


@dataclass(frozen=True)
class ShowBody(Body):
    """`harness golden show`: a golden as its file holds it.

    Attributes:
        golden: The golden's file.
        golden_version: The version of the golden's own form; `schema_version` in its file.
        pair: The pair's name.
        recorded_at: When it was recorded, ISO 8601 in UTC.
        reason: Why it was recorded.
        engine: The engine that recorded it.
        device: `cpu` or `cuda`.
        dtype: The dtype in which target and draft computed.
        floor: The acceptance rate that must not be fallen below.
        target: What makes a target another target.
        wiring: The layer ids as written, what they meant and what was captured.
        decode: The decode settings.
        versions: Library versions.
        machine: The machine, without its name.
        commit: The commit that was checked out, with `+` if an earlier release saw changed files; `None` outside a
            repository.
        hashes: SHA-256 of each file of the pair.
        totals: Sums over the prompts, and the rates that follow from them.
        noise: What rounding alone changes, by dtype.
        blindness: The fault put in when it was recorded and what saw it; `None` if that was not checked.
        by_prompt: Each prompt's counts.
        tensors: The file of its tensors, next to it.
        history: Earlier records' totals, oldest first.
        eos_ids: The ids that ended a text; `None` in a golden of version 1, which does not say.
        pair_file: The pair file, relative to the golden's folder; `None` if it is not known.
        revisions: The commits of a target and draft from the hub, by `target` and `draft`.
        left_out: Prompts that were not recorded, since their continuations are loops.
        runs: How each run was made, if the pair was measured several times.
        standard_errors: The standard errors of the rates.
    """

    golden: str
    golden_version: int
    pair: str
    recorded_at: str
    reason: str
    engine: str
    device: str
    dtype: str
    floor: float
    target: TargetShape
    wiring: WiringEntry
    decode: Mapping[str, int | float]
    versions: Mapping[str, str]
    machine: Mapping[str, str]
    commit: str | None
    hashes: Mapping[str, str]
    totals: Totals
    noise: Mapping[str, Noise]
    blindness: Blindness | None
    by_prompt: tuple[GoldenPrompt, ...]
    tensors: str
    history: tuple[HistoryEntry, ...]
    eos_ids: tuple[int, ...] | None
    pair_file: str | None
    revisions: Mapping[str, str]
    left_out: tuple[LeftOutPrompt, ...]
    runs: tuple[str, ...]
    standard_errors: StandardErrorsBody


def show_body(golden: Golden) -> ShowBody:
    """Return what `harness golden show --json` prints."""
    held = {name: getattr(golden.document, name) for name in type(golden.document).model_fields}
    return ShowBody(
        golden=str(golden.file),
        golden_version=held.pop("schema_version"),
        by_prompt=tuple(held.pop("prompts")),
        standard_errors=acceptance_body(golden.document.acceptance).standard_errors,
        **held,
    )


@dataclass(frozen=True)
class DiffSideBody:
    """One of two goldens.

    Attributes:
        golden: Its file.
        rate: The recorded acceptance rate, 0 to 1.
        standard_error: The rate's standard error, prompts as clusters.
    """

    golden: str
    rate: float | None
    standard_error: float | None


@dataclass(frozen=True)
class AcceptedBody:
    """A prompt's tokens.

    Attributes:
        accepted: Draft tokens accepted.
        proposed: Draft tokens proposed.
    """

    accepted: int
    proposed: int


@dataclass(frozen=True)
class PromptDifferenceBody:
    """A prompt that two goldens measured differently.

    Attributes:
        id: The prompt.
        before: Its tokens in the first golden.
        after: Its tokens in the second golden.
        continuation_differs: Whether the reference continuation is another one.
        changed: Positions at which another chain is proposed; `None` if the continuations differ or one golden does not
            have proposals.
    """

    id: str
    before: AcceptedBody
    after: AcceptedBody
    continuation_differs: bool
    changed: int | None


@dataclass(frozen=True)
class SettingDifferenceBody:
    """A setting that differs.

    Attributes:
        before: Its value in the first golden.
        after: Its value in the second golden.
    """

    before: Any
    after: Any


@dataclass(frozen=True)
class DiffBody(Body):
    """`harness golden diff`: what differs between two goldens.

    Attributes:
        same: Whether nothing that was measured differs, and nothing that it was measured with.
        before: The first golden.
        after: The second golden.
        settings: Settings, wiring and floors that differ, by name.
        removed: Ids of prompts that only the first golden has.
        added: Ids of prompts that only the second golden has.
        by_prompt: The prompts of both that were measured differently.
    """

    same: bool
    before: DiffSideBody
    after: DiffSideBody
    settings: Mapping[str, SettingDifferenceBody]
    removed: tuple[str, ...]
    added: tuple[str, ...]
    by_prompt: tuple[PromptDifferenceBody, ...]


def diff_body(result: Difference) -> DiffBody:
    """Return what `harness golden diff --json` prints."""

    def side(golden: Golden) -> DiffSideBody:
        recorded = golden.document.acceptance
        return DiffSideBody(str(golden.file), recorded.rate, recorded.errors["rate"])

    return DiffBody(
        same=result.same,
        before=side(result.before),
        after=side(result.after),
        settings={name: SettingDifferenceBody(*values) for name, values in result.settings.items()},
        removed=result.removed,
        added=result.added,
        by_prompt=tuple(
            PromptDifferenceBody(
                prompt.id,
                AcceptedBody(*prompt.before),
                AcceptedBody(*prompt.after),
                continuation_differs=prompt.text,
                changed=prompt.proposals,
            )
            for prompt in result.prompts
        ),
    )


@dataclass(frozen=True)
class VerifyBody(Body):
    """`harness golden verify`: a pair's goldens against themselves and the pair's files.

    Attributes:
        pair: The pair's name.
        verified: Whether none of them has a problem.
        goldens: What is wrong with each golden, by its file.
    """

    pair: str
    verified: bool
    goldens: Mapping[str, tuple[str, ...]]


def verify_body(pair: str, problems: Mapping[str, list[str]]) -> VerifyBody:
    """Return what `harness golden verify --json` prints."""
    goldens = {file: tuple(found) for file, found in problems.items()}
    return VerifyBody(pair, not any(goldens.values()), goldens)


@dataclass(frozen=True)
class OrphanBody:
    """Something among the goldens that nothing uses.

    Attributes:
        kind: `folder`, `tensors` or `unreadable`.
        path: Where it is.
        problem: One sentence for a person.
    """

    kind: str
    path: str
    problem: str


@dataclass(frozen=True)
class OrphansBody(Body):
    """`harness golden orphans`: goldens that no pair file of the project uses.

    Attributes:
        folder: The folder of goldens.
        root: The project, below which the pair files are.
        pairs: The names of the pairs found there.
        orphans: What none of them uses.
    """

    folder: str
    root: str
    pairs: tuple[str, ...]
    orphans: tuple[OrphanBody, ...]


def orphans_body(result: OrphanReport) -> OrphansBody:
    """Return what `harness golden orphans --json` prints."""
    return OrphansBody(
        folder=str(result.home),
        root=str(result.root),
        pairs=result.pairs,
        orphans=tuple(OrphanBody(orphan.kind, str(orphan.path), orphan.problem) for orphan in result.orphans),
    )
