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
    """

    golden: str
    replaced: bool


def record_body(result: RecordResult) -> RecordBody:
    """Return what `harness record --json` prints."""
    measured = measured_body(result.measurement, result.measurement.run.notes)
    return RecordBody(**vars(measured), golden=str(result.file), replaced=result.replaced)
