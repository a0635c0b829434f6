"""Both readings of a draft's config: as its writer meant it, and as the engine that serves it takes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import InputError
from harness.facts.families import Family
from harness.facts.layer_ids import Reading, find_convention
from harness.pair.draft_flags import DraftFlags
from harness.pair.layer_config import LayerConfig
from harness.pair.target_spec import TargetSpec

__all__ = ["Readings", "Wiring", "read_both", "require_writer"]


@dataclass(frozen=True)
class Wiring:
    """The meaning of a draft's config to its writer and to the engine that serves it.

    Attributes:
        trained: Its layer ids as trained.
        served: The layer ids that the engine looks at, as served.
        trained_flags: Its flags as trained.
        served_flags: Its flags as served.
        overlooked: The remark on layer ids that the engine does not look at; `None` if it sees them.
    """

    trained: Reading
    served: Reading
    trained_flags: DraftFlags
    served_flags: DraftFlags
    overlooked: str | None = None

    @property
    def agree(self) -> bool:
        """Whether the states served are those of the boundaries trained on."""
        return self.served.captured == self.trained.boundaries

    @property
    def loses_states(self) -> bool:
        """Whether fewer states are captured than the draft was trained on: its `fc` would die with a shape error."""
        return len(self.served.captured) != len(self.trained.boundaries)


@dataclass(frozen=True)
class Readings:
    """Both readings of the layer ids and flags, each as far as it can be made.

    Attributes:
        trained: The ids as trained, or why they cannot be read so.
        served: The ids as served, or why they cannot be read so.
        trained_flags: The flags as trained; `None` if the convention is not known.
        served_flags: The flags as served; `None` if the convention is not known.
        overlooked: The remark on layer ids that the engine does not look at; `None` if it sees them.
    """

    trained: Reading | InputError
    served: Reading | InputError
    trained_flags: DraftFlags | None
    served_flags: DraftFlags | None
    overlooked: str | None

    def require(self) -> Wiring:
        """Return the wiring.

        Raises:
            InputError: The first reading that cannot be made.
        """
        if isinstance(self.trained, InputError):
            raise self.trained
        if isinstance(self.served, InputError):
            raise self.served
        # An unknown convention has raised by now.
        assert self.trained_flags is not None
        assert self.served_flags is not None
        return Wiring(self.trained, self.served, self.trained_flags, self.served_flags, self.overlooked)


def require_writer(trained_as: str | None, family: Family, target: TargetSpec, *, file: Path) -> str:
    """Return the convention of a draft's writer, which the pair file must say, since a checkpoint does not.

    Args:
        trained_as: The value in the pair file.
        family: The kind of the draft's config, which narrows down its writers.
        target: The target, since some conventions number by model class.
        file: The pair file, for the message.

    Raises:
        InputError: The pair file does not say it.
    """
    if trained_as is not None:
        return trained_as
    raise InputError(
        "the checkpoint does not say which convention its layer ids were written in",
        file=file,
        key="trained_as",
        expected=" or ".join(family.writers),
        next_step=f"name who trained the draft: {', '.join(_with_rule(name, target) for name in family.writers)}",
    )


def _with_rule(convention: str, target: TargetSpec) -> str:
    try:
        return f"{convention} ({find_convention(convention, architecture=target.architecture).rule.text})"
    except InputError:
        # An engine without a rule for this target is an unlikely writer: its name is listed without a rule.
        return convention


def read_both(
    layers: LayerConfig, target: TargetSpec, *, file: Path, trained_as: str, served_by: str | None
) -> Readings:
    """Return both readings of a draft's config.

    Args:
        layers: The draft's config.
        target: The target, whose blocks and class the readings depend on.
        file: The pair file, for messages.
        trained_as: The convention of the draft's writer.
        served_by: The engine that serves the pair; the reference, which captures what was trained, if `None`.

    Raises:
        InputError: A flag of the config is not usable by any reader.
    """
    trained, trained_flags = _read(layers.read_trained, layers, target, trained_as, file, "trained_as")
    if served_by is None:
        # The reference captures what the ids mean. `trained_as` tells their numbering; a fault of the engine that a
        # numbering is named after does not touch the reference.
        served = trained if isinstance(trained, InputError) else replace(trained, fault=None)
        return Readings(trained, served, trained_flags, trained_flags, None)
    served, served_flags = _read(layers.read_served, layers, target, served_by, file, "served_by")
    return Readings(trained, served, trained_flags, served_flags, layers.overlooked_by(served_by))


def _read(
    read: Callable[[str, int, str], Reading],
    layers: LayerConfig,
    target: TargetSpec,
    convention: str,
    file: Path,
    key: str,
) -> tuple[Reading | InputError, DraftFlags | None]:
    try:
        # Before the ids are read: if the convention is not known, the pair file's key is at fault and not the ids.
        find_convention(convention, architecture=target.architecture, file=file, key=key)
    except InputError as error:
        return error, None
    flags = layers.flags(convention)
    try:
        return read(convention, target.num_layers, target.architecture), flags
    except InputError as error:
        return error, flags
