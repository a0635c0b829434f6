"""What `harness layers` prints with `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.report.bodies.base import Body

if TYPE_CHECKING:
    from harness.commands.layers import EngineLayers, LayersReport
from harness.report.bodies.readings import KnownFaultBody, known_fault_body

__all__ = ["EngineLayersBody", "LayersBody", "layers_body"]


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
    fault: KnownFaultBody | None
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
        fault=None if reading is None else known_fault_body(reading.fault),
        notes=() if reading is None else reading.remarks,
        reason=engine.reason,
        write=engine.write,
        cannot_say=engine.cannot,
    )
