"""What `harness trace` prints with `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.counts.statistics import Unbounded
from harness.report.bodies.base import Body

if TYPE_CHECKING:
    from harness.commands.trace import Trace

__all__ = ["StepBody", "StepValue", "TraceBody", "trace_body"]


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
