"""What `harness measure` prints with `--json`, and the part of it that other commands print too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.commands.measure import looping
from harness.golden.schema import CountedPrompt
from harness.report.bodies.base import AcceptanceBody, Body, acceptance_body

if TYPE_CHECKING:
    from harness.commands.measure import Measurement

__all__ = ["EngineBody", "MeasureBody", "MeasuredBody", "measure_body", "measured_body"]


@dataclass(frozen=True)
class EngineBody:
    """What measured the pair.

    Attributes:
        name: The engine, with its mode, such as `reference:replay`.
        device: `cpu` or `cuda`.
        dtype: The dtype in which target and draft computed.
    """

    name: str
    device: str
    dtype: str


@dataclass(frozen=True)
class MeasuredBody:
    """What every measurement says.

    Attributes:
        pair: The pair's name.
        engine: What measured it.
        boundaries: The boundaries that are captured, in the order of concatenation.
        acceptance: Acceptance over all prompts.
        categories: The same by category of prompts; empty if only sums over all prompts are known.
        loops: Ids of prompts whose continuation repeats itself, which inflates acceptance.
        by_prompt: Each prompt's counts, from which every rate can be worked out again.
        aggregate: Rounds by number of accepted tokens over all prompts, if the engine knows nothing else.
        server: What a server says of itself; `None` if none was asked.
        notes: Remarks that decide nothing.
        seconds: Wall-clock time in seconds, loading included.
    """

    pair: str
    engine: EngineBody
    boundaries: tuple[int, ...]
    acceptance: AcceptanceBody
    categories: Mapping[str, AcceptanceBody]
    loops: tuple[str, ...]
    by_prompt: tuple[CountedPrompt, ...]
    aggregate: tuple[int, ...] | None
    server: Mapping[str, Any] | None
    notes: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class MeasureBody(MeasuredBody, Body):
    """`harness measure`: a pair's rates, without a verdict."""


def measured_body(measurement: Measurement, notes: tuple[str, ...]) -> MeasuredBody:
    """Return the part of a body that every measurement has, with the notes that the command prints."""
    run = measurement.run
    return MeasuredBody(
        pair=measurement.pair.name,
        engine=EngineBody(run.engine, run.device, run.dtype),
        boundaries=measurement.pair.boundaries,
        acceptance=acceptance_body(measurement.acceptance),
        categories={name: acceptance_body(value) for name, value in measurement.by_category().items()},
        loops=tuple(looping(run.records)),
        by_prompt=tuple(CountedPrompt(**CountedPrompt.row(record)) for record in run.records),
        aggregate=run.aggregate,
        server=dict(run.served) or None,
        notes=notes,
        seconds=round(measurement.seconds, 3),
    )


def measure_body(measurement: Measurement) -> MeasureBody:
    """Return what `harness measure --json` prints."""
    return MeasureBody(**vars(measured_body(measurement, measurement.run.notes)))
