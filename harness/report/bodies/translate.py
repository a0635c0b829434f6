"""What `harness translate` prints with `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.report.bodies.base import Body

if TYPE_CHECKING:
    from harness.commands.translate import Translation
    from harness.facts.layer_ids import Reading
from harness.report.bodies.readings import KnownFaultBody, known_fault_body

__all__ = ["ReadingBody", "TranslateBody", "translate_body"]


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
    fault: KnownFaultBody | None


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
        return ReadingBody(
            one.convention, one.ids, one.rule, one.source, one.captured, one.missing, known_fault_body(one.fault)
        )

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
