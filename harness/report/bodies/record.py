"""What `harness record` prints with `--json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.report.bodies.base import Body

if TYPE_CHECKING:
    from harness.commands.record import RecordResult
from harness.report.bodies.measure import MeasuredBody, measured_body

__all__ = ["RecordBody", "record_body"]


@dataclass(frozen=True)
class RecordBody(MeasuredBody, Body):
    """`harness record`: a pair measured and written as its golden.

    Attributes:
        golden: The golden's file.
        replaced: Whether it took the place of an earlier one.
        resumed: Number of continuations that an earlier attempt had decoded.
        left_out: Ids of prompts that were not recorded, since their continuations are loops.
        unfed: Names of the detectors that the golden does not feed.
    """

    golden: str
    replaced: bool
    resumed: int
    left_out: tuple[str, ...]
    unfed: tuple[str, ...]


def record_body(result: RecordResult) -> RecordBody:
    """Return what `harness record --json` prints."""
    measured = measured_body(result.measurement, result.notes)
    return RecordBody(
        **vars(measured),
        golden=str(result.file),
        replaced=result.replaced,
        resumed=result.resumed,
        left_out=tuple(prompt.id for prompt in result.golden.document.left_out),
        unfed=result.unfed,
    )
