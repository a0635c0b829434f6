"""Which boundaries each engine and trainer would use for one draft config, and what would make them agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.errors import InputError
from harness.facts.conventions import CONVENTIONS, Reading, read_ids, write_ids
from harness.facts.sglang import SGLANG_ROWS, shared_class
from harness.pair.layer_config import LayerConfig

__all__ = ["EngineLayers", "LayersReport", "compare_layers"]


@dataclass(frozen=True)
class EngineLayers:
    """What one engine or trainer makes of the config.

    Attributes:
        reading: How it reads the ids it sees; `None` where it cannot.
        reason: Why not.
        sees: The ids that it looks at, `None` for its own default.
        write: The ids by which it would serve the boundaries trained on; `None` where it cannot say them.
        cannot: Why not.
    """

    reading: Reading | None
    reason: str | None
    sees: tuple[int, ...] | None
    write: tuple[int, ...] | None = None
    cannot: str | None = None


@dataclass(frozen=True)
class LayersReport:
    """All engines and trainers on one config.

    Attributes:
        config: The config.
        trained_as: The convention taken for the writer's.
        assumed: Whether that is the family's likeliest, and nobody said so.
        trained: The boundaries trained on; `None` where a target is needed to know them.
        engines: By convention.
    """

    config: LayerConfig
    trained_as: str
    assumed: bool
    trained: tuple[int, ...] | None
    engines: Mapping[str, EngineLayers]

    @property
    def disagreements(self) -> list[str]:
        """Those that would use other boundaries than were trained on."""
        if self.trained is None:
            return []
        return [
            name
            for name, engine in self.engines.items()
            if engine.reading is not None and engine.reading.boundaries != self.trained
        ]


def compare_layers(
    config: LayerConfig, *, num_layers: int | None, architecture: str | None, trained_as: str | None = None
) -> LayersReport:
    """Read a config's ids as every engine and trainer would.

    Args:
        config: The config.
        num_layers: The target's blocks, N; `None` where no target is known.
        architecture: The target's architecture; `None` where no target is known.
        trained_as: Who wrote the ids; the likeliest writer of the config's family where it is `None`.
    """
    writer = trained_as or config.family.writers[0]
    trained = _read(config, writer, config.ids, num_layers, architecture)
    if trained_as is not None and trained.reading is None and num_layers is not None:
        raise InputError(f"the ids cannot be read as {writer}: {trained.reason}", file=config.file, key=config.key)
    boundaries = None if trained.reading is None else trained.reading.boundaries
    engines = {}
    for name in _names(architecture, writer):
        engine = _read(config, name, config.seen_by(name), num_layers, architecture)
        engines[name] = _with_advice(engine, name, boundaries, num_layers, architecture)
    return LayersReport(config, writer, trained_as is None, boundaries, engines)


def _names(architecture: str | None, writer: str) -> list[str]:
    """Return the conventions to compare: each of SGLang's rules for the architecture by its first and last version."""
    names = [name for name in CONVENTIONS if name not in ("boundary", "transformers")]
    rows = SGLANG_ROWS.get(shared_class(architecture or "") or "", ())
    names += [f"sglang=={version}" for row in rows for version in dict.fromkeys((row.first, row.last))]
    if architecture is None:
        names.append("sglang")
    return names if writer in names else [writer, *names]


def _read(
    config: LayerConfig, name: str, ids: tuple[int, ...] | None, num_layers: int | None, architecture: str | None
) -> EngineLayers:
    if num_layers is None:
        # Where the default or the range depends on N nothing can be said, and never a guess.
        return EngineLayers(None, "the target's number of layers is needed: give --target", ids)
    if name.startswith("sglang==") and architecture is None:
        return EngineLayers(None, "the target's architecture is needed: give --target", ids)
    try:
        reading = read_ids(
            ids, name, num_layers=num_layers, architecture=architecture or "", file=config.file, key=config.key
        )
    except InputError as error:
        return EngineLayers(None, error.problem, ids)
    return EngineLayers(reading, None, ids)


def _with_advice(
    engine: EngineLayers,
    name: str,
    boundaries: tuple[int, ...] | None,
    num_layers: int | None,
    architecture: str | None,
) -> EngineLayers:
    if boundaries is None or num_layers is None or architecture is None:
        return engine
    try:
        written = write_ids(boundaries, name, num_layers=num_layers, architecture=architecture)
    except InputError as error:
        return EngineLayers(engine.reading, engine.reason, engine.sees, None, error.problem)
    return EngineLayers(engine.reading, engine.reason, engine.sees, written.ids)
