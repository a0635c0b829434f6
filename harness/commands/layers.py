"""The boundaries that each engine and trainer would use for a draft's config, and the ids that make them agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import Version

from harness.errors import InputError
from harness.facts.conventions import CONVENTIONS
from harness.facts.known import faults_of
from harness.facts.layer_ids import Reading, write_ids
from harness.facts.sglang import SGLANG_ROWS, shared_class
from harness.pair.layer_config import LayerConfig, read_layer_config
from harness.pair.target_spec import read_target_spec

__all__ = ["EngineLayers", "LayersReport", "compare_layers", "layers"]


@dataclass(frozen=True)
class EngineLayers:
    """One engine's or trainer's reading of the config.

    Attributes:
        reading: Its reading of the ids that it sees; `None` if it cannot read them.
        reason: Why it cannot read them.
        sees: The ids that it looks at, `None` for its own default.
        write: The ids by which it would serve the boundaries trained on; `None` if it cannot serve them.
        cannot: Why it cannot serve them.
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
        config: The draft's config.
        trained_as: The convention of the writer.
        assumed: Whether that is only the likeliest writer of the config's family.
        trained: The boundaries trained on; `None` if a target is needed to know them.
        engines: The reading of each convention.
    """

    config: LayerConfig
    trained_as: str
    assumed: bool
    trained: tuple[int, ...] | None
    engines: Mapping[str, EngineLayers]

    @property
    def disagreements(self) -> list[str]:
        """The conventions by which other states are captured than those trained on."""
        if self.trained is None:
            return []
        return [
            name
            for name, engine in self.engines.items()
            if engine.reading is not None and engine.reading.captured != self.trained
        ]


def layers(
    draft: Path,
    *,
    target: Path | None = None,
    num_layers: int | None = None,
    architecture: str | None = None,
    trained_as: str | None = None,
) -> LayersReport:
    """Read a draft's ids as every engine and trainer would, for a target given by its folder or by two values.

    Args:
        draft: The draft's folder or its config.
        target: The target's folder, whose config is read.
        num_layers: The target's number of decoder blocks, N, if its folder is not at hand.
        architecture: The target's architecture, if its folder is not at hand.
        trained_as: The writer of the ids; the likeliest writer of the config's family if `None`.

    Raises:
        InputError: A config cannot be read, the options contradict each other, or the ids do not fit the writer.
    """
    config = read_layer_config(draft)
    if target is not None:
        if num_layers is not None or architecture is not None:
            raise InputError(
                "--target says both of these",
                key="--layers and --arch",
                expected="--target alone, or --layers and --arch without it",
            )
        spec = read_target_spec(
            target, next_step="give a checkpoint folder as --target, or --layers and --arch instead"
        )
        num_layers, architecture = spec.num_layers, spec.architecture
    return compare_layers(config, num_layers=num_layers, architecture=architecture, trained_as=trained_as)


def compare_layers(
    config: LayerConfig, *, num_layers: int | None, architecture: str | None, trained_as: str | None = None
) -> LayersReport:
    """Read a config's ids as every engine and trainer would.

    Args:
        config: The draft's config.
        num_layers: The target's number of decoder blocks, N; `None` if the target is not known.
        architecture: The target's architecture; `None` if the target is not known.
        trained_as: The writer of the ids; the likeliest writer of the config's family if `None`.
    """
    writer = trained_as or config.family.writers[0]
    trained = _read(config.read_trained, writer, config.ids, num_layers, architecture)
    if trained_as is not None and trained.reading is None and num_layers is not None:
        raise InputError(f"the ids cannot be read as {writer}: {trained.reason}", file=config.file, key=config.key)
    boundaries = None if trained.reading is None else trained.reading.boundaries
    engines = {}
    for name in _names(architecture, writer):
        engine = _read(config.read_served, name, config.seen_by(name), num_layers, architecture)
        engines[name] = _with_advice(engine, name, boundaries, num_layers, architecture)
    return LayersReport(config, writer, trained_as is None, boundaries, engines)


def _names(architecture: str | None, writer: str) -> list[str]:
    """Return the conventions to compare: SGLang by the first and last release of each rule and each known fault."""
    names = [name for name in CONVENTIONS if name not in ("boundary", "transformers")]
    spans = [(row.first, row.last) for row in SGLANG_ROWS.get(shared_class(architecture or "") or "", ())]
    spans += [(fault.first, fault.last) for fault in faults_of(architecture or "")]
    names += [f"sglang=={version}" for version in sorted({one for span in spans for one in span}, key=Version)]
    if not spans:
        # One row that says why SGLang's are missing.
        names.append("sglang")
    return names if writer in names else [writer, *names]


def _read(
    read: Callable[[str, int, str], Reading],
    name: str,
    ids: tuple[int, ...] | None,
    num_layers: int | None,
    architecture: str | None,
) -> EngineLayers:
    if num_layers is None:
        # The default and the range of ids depend on N: without it any answer would be a guess.
        return EngineLayers(None, "the target's number of layers is needed: give --target or --layers", ids)
    if architecture is None and name.partition("==")[0] == "sglang":
        return EngineLayers(None, "the target's architecture is needed: give --target or --arch", ids)
    try:
        return EngineLayers(read(name, num_layers, architecture or ""), None, ids)
    except InputError as error:
        return EngineLayers(None, error.problem, ids)


def _with_advice(
    engine: EngineLayers,
    name: str,
    boundaries: tuple[int, ...] | None,
    num_layers: int | None,
    architecture: str | None,
) -> EngineLayers:
    if boundaries is None or num_layers is None:
        return engine
    try:
        written = write_ids(boundaries, name, num_layers=num_layers, architecture=architecture or "")
    except InputError as error:
        return replace(engine, cannot=error.problem)
    if written.fault is not None:
        return replace(engine, cannot=str(written.fault))
    return replace(engine, write=written.ids)
