"""The one place where a layer id becomes a boundary, and a boundary an id. Past it nothing adds or subtracts one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from packaging.version import InvalidVersion, Version

from harness.errors import InputError
from harness.facts.conventions import CONVENTIONS, LOW_MID_HIGH, SPECULATORS, Convention, convention_names, newest
from harness.facts.keys import NESTED_IDS_KEY
from harness.facts.known import KnownFault, find_known
from harness.facts.sglang import LAST, SGLANG_ROWS, EngineRow, shared_class

__all__ = ["Reading", "find_convention", "read_ids", "states_text", "write_ids"]


@dataclass(frozen=True)
class Reading:
    """Ids read in one convention.

    Attributes:
        convention: The convention's name, with the version that was meant.
        ids: The ids as given, or the convention's default.
        boundaries: The boundaries captured by the rule, in the order in which they are concatenated.
        defaulted: Whether the ids are the convention's default, for a checkpoint without ids.
        rule: The rule in words.
        source: Where the rule was read.
        lost: The losses of the rule, each in words: order, repeats, a boundary that a loop never reaches.
        meant: The boundary of each id, in the order of the ids, before any loss.
        fault: The known fault of the release by which other states are captured than `boundaries`; `None` if none
            affects these ids.
    """

    convention: str
    ids: tuple[int, ...]
    boundaries: tuple[int, ...]
    defaulted: bool
    rule: str
    source: str = ""
    lost: tuple[str, ...] = ()
    meant: tuple[int, ...] = ()
    fault: KnownFault | None = None

    @property
    def captured(self) -> tuple[int | None, ...]:
        """The boundary of each state captured; `None` is a state that is not any boundary's."""
        return self.boundaries if self.fault is None else self.fault.effect.captures(self.boundaries)

    @property
    def missing(self) -> tuple[int, ...]:
        """The boundaries that the ids mean and that are not captured, ascending."""
        return tuple(sorted(set(self.meant) - set(self.captured)))

    @property
    def remarks(self) -> tuple[str, ...]:
        """Why other states are captured than the ids mean, each reason in words."""
        return self.lost if self.fault is None else (*self.lost, str(self.fault))


def states_text(captured: Sequence[int | None]) -> str:
    """Return captured states in words, such as `[0, none, none]`; `none` is a state that is not any boundary's."""
    if not captured:
        return "nothing"
    return f"[{', '.join('none' if boundary is None else str(boundary) for boundary in captured)}]"


def find_convention(name: str, *, architecture: str, file: object = None, key: str | None = None) -> Convention:
    """Return the convention called `name` (such as `specforge` or `sglang==0.5.23`) for a target architecture.

    Raises:
        InputError: The convention is unknown, or its rule for the version or the architecture is.
    """
    where = str(file) if file is not None else None
    base, _, given = newest(name).partition("==")
    if base == "sglang":
        return _find_sglang(name, _version(given, name, where, key), architecture, where, key)
    if base == "speculators":
        version = _version(given, name, where, key)
        rows = [row for first, row in SPECULATORS if Version(first) <= version]
        if not rows:
            raise InputError(
                "this version of speculators was not read", file=where, key=key, found=name, expected="0.1 or later"
            )
        return replace(CONVENTIONS[rows[-1]], name=f"speculators=={given}")
    if base not in CONVENTIONS:
        raise InputError(
            "unknown layer-id convention", file=where, key=key, found=name, expected=" or ".join(convention_names())
        )
    if given:
        raise InputError("this convention does not have versions", file=where, key=key, found=name, expected=base)
    return CONVENTIONS[base]


def _version(text: str, name: str, file: str | None, key: str | None) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise InputError(
            "the convention's version is not valid",
            file=file,
            key=key,
            found=name,
            expected=f"a version such as {LAST}",
        ) from None


def _find_sglang(name: str, version: Version, architecture: str, file: str | None, key: str | None) -> Convention:
    model = shared_class(architecture)
    rows = SGLANG_ROWS.get(model or "", ())
    if not rows:
        raise InputError(
            f"the rule by which {name} reads layer ids of this target is not known",
            file=file,
            key=key,
            found=architecture,
            expected="an architecture whose SGLang class captures states for EAGLE-3",
            # Without a file the ids came from the command line, where there is no key to leave out.
            next_step="check the architecture's name, or use the convention boundary"
            if file is None
            else 'leave the key out, and give the captured boundaries as ids with trained_as = "boundary"',
        )
    for row in rows:
        if Version(row.first) <= version <= Version(row.last):
            return _sglang(row, version, model or "", find_known(architecture, version))
    spans = ", ".join(f"{row.first} to {row.last}" if row.first != row.last else row.first for row in rows)
    raise InputError(
        f"the rule of this version for {architecture} was not read",
        file=file,
        key=key,
        found=f"sglang=={version}",
        expected=f"a version of {spans}",
        next_step="name the nearest version, if you have checked that its rule is the same",
    )


def _sglang(row: EngineRow, version: Version, model: str, fault: KnownFault | None) -> Convention:
    return Convention(
        name=f"sglang=={version}",
        rule=row.rule,
        default_ids=LOW_MID_HIGH,
        source=f"SGLang {row.first} to {row.last}, {model}.py: set_eagle3_layers_to_capture",
        default_rule=row.default_rule,
        in_order=False,
        embedding=row.embedding,
        last_reached=row.last_reached,
        fault=fault,
    )


def read_ids(
    ids: Sequence[int] | None,
    convention: str,
    *,
    num_layers: int,
    architecture: str,
    file: object = None,
    key: str | None = None,
) -> Reading:
    """Translate layer ids to boundaries.

    Args:
        ids: The ids as written, or `None` if the checkpoint does not have any.
        convention: The convention's name, with `==version` for an engine that has versions.
        num_layers: The target's number of decoder blocks, N.
        architecture: The target's architecture, since some engines number by model class.
        file: The file with the ids, for messages.
        key: The key of the ids, for messages.

    Raises:
        InputError: The convention is unknown or lacks a default, or an id does not mean a boundary of this target.
    """
    where = str(file) if file is not None else None
    found = find_convention(convention, architecture=architecture)
    defaulted = ids is None
    rule = found.rule
    if ids is None:
        ids = found.defaults(num_layers)
        if ids is None:
            raise InputError(
                f"the layer ids are missing, and the convention {convention!r} does not have default ids",
                file=where,
                key=key,
                next_step=f"write {NESTED_IDS_KEY} into the draft's config.json",
            )
        rule = found.default_rule or rule
    offset = rule.offset(ids, num_layers)
    meant = tuple(value + offset for value in ids)
    boundaries = list(meant)
    _require_boundaries(found, ids, boundaries, num_layers, where, key)
    lost = []
    if not found.last_reached and num_layers in boundaries:
        boundaries = [boundary for boundary in boundaries if boundary < num_layers]
        lost.append(f"boundary {num_layers}, before the final norm, is never reached by the loop over layers")
    if not found.in_order and boundaries != sorted(set(boundaries)):
        lost.append(f"order and repeats of {boundaries} are lost: it captures in ascending order, each once")
        boundaries = sorted(set(boundaries))
    fault = found.fault
    # A fault that does not affect these boundaries is left out: the embedding, for one, has yet to meet a residual.
    if fault is not None and fault.effect.captures(boundaries) == tuple(boundaries):
        fault = None
    return Reading(
        convention=found.name,
        ids=tuple(ids),
        boundaries=tuple(boundaries),
        defaulted=defaulted,
        rule=rule.describe(ids, num_layers),
        source=found.source,
        lost=tuple(lost),
        meant=meant,
        fault=fault,
    )


def _require_boundaries(
    found: Convention, ids: Sequence[int], boundaries: list[int], num_layers: int, file: str | None, key: str | None
) -> None:
    lowest = 0 if found.embedding else 1
    highest = num_layers - 1 if found.post_norm_last else num_layers
    offset = boundaries[0] - ids[0] if boundaries else 0
    for value, boundary in zip(ids, boundaries, strict=True):
        if lowest <= boundary <= highest:
            continue
        if boundary == 0:
            why = (
                f"layer id {value} is the embedding, which {found.name} cannot capture: its loop adds a residual that "
                "does not exist there yet"
            )
        elif boundary == num_layers:
            why = f"layer id {value} is the state after the final norm, which is not a boundary"
        else:
            why = f"layer id {value} does not stand for a hidden state of this target"
        raise InputError(
            why,
            file=file,
            key=key,
            found=f"boundary {boundary} by the rule of {found.name} (id + {offset})",
            expected=f"a boundary from {lowest}{' (embedding)' if lowest == 0 else ''} to {highest}"
            f"{' (before the final norm)' if highest == num_layers else ''}, "
            f"so an id from {lowest - offset} to {highest - offset}",
            next_step="correct the ids, or name the convention that they were written in"
            + ("" if file is None else " with trained_as"),
        )


def write_ids(boundaries: Sequence[int], convention: str, *, num_layers: int, architecture: str) -> Reading:
    """Return the ids by which a convention says boundaries, as the reading that they get.

    A known fault of the release is part of that reading and not a reason to refuse: the ids mean the boundaries.

    Raises:
        InputError: The convention is unknown, or cannot say these boundaries, with the reason.
    """
    found = find_convention(convention, architecture=architecture)
    reasons: list[str] = []
    for offset in found.rule.offsets:
        ids = [boundary - offset for boundary in boundaries]
        try:
            reading = read_ids(ids, convention, num_layers=num_layers, architecture=architecture)
        except InputError as error:
            reasons.append(error.problem)
            continue
        if reading.boundaries == tuple(boundaries):
            return reading
        reasons += reading.lost or (f"ids {ids} would be read as {list(reading.boundaries)}, since {found.rule.text}",)
    raise InputError(
        f"{found.name} cannot say these boundaries: {'; '.join(dict.fromkeys(reasons))}",
        key="--to",
        found=list(boundaries),
        next_step="choose boundaries that this engine can capture, or another engine",
    )
