"""Layer ids from one convention into boundaries, and into another convention's ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.errors import InputError
from harness.facts.conventions import newest
from harness.facts.layer_ids import Reading, read_ids, write_ids

__all__ = ["Translation", "translate"]


@dataclass(frozen=True)
class Translation:
    """Layer ids in two conventions.

    Attributes:
        architecture: The target's architecture.
        num_layers: The target's number of decoder blocks, N.
        read: The ids as given, read in the convention that they are written in.
        written: The ids that mean the same boundaries in the other convention.
        assumed: The version taken for each convention that is kept by version and was given without one.
    """

    architecture: str
    num_layers: int
    read: Reading
    written: Reading
    assumed: Mapping[str, str]

    @property
    def lost(self) -> tuple[int, ...]:
        """The boundaries that the ids mean and that a known fault of either engine loses, ascending."""
        return tuple(sorted({*self.read.missing, *self.written.missing}))

    @property
    def notes(self) -> tuple[str, ...]:
        """The known faults by which boundaries are lost, in words."""
        return tuple(dict.fromkeys((*self.read.remarks, *self.written.remarks)))


def translate(ids: Sequence[int], source: str, *, to: str, num_layers: int, architecture: str) -> Translation:
    """Translate layer ids from one convention into another.

    Args:
        ids: The layer ids as written.
        source: The convention that they are written in, such as `sglang==0.5.23`.
        to: The convention to write them in.
        num_layers: The target's number of decoder blocks, N.
        architecture: The target's architecture, since some engines number by model class.

    Raises:
        InputError: A convention is unknown or cannot say these boundaries, or an engine captures none of them.
    """
    read = read_ids(ids, source, num_layers=num_layers, architecture=architecture)
    if read.lost:
        raise InputError(
            f"{read.convention} does not serve these ids as they are: {'; '.join(read.lost)}",
            key="IDS",
            found=list(ids),
            expected="ids in ascending order, each once, of boundaries that its loop reaches",
            next_step=f"it would serve boundaries {list(read.boundaries)}",
        )
    _require_some(read, architecture, key="IDS")
    written = write_ids(read.boundaries, to, num_layers=num_layers, architecture=architecture)
    _require_some(written, architecture, key="--to")
    assumed = {name: newest(name) for name in (source, to) if newest(name) != name}
    return Translation(architecture, num_layers, read, written, assumed)


def _require_some(reading: Reading, architecture: str, *, key: str) -> None:
    """Refuse a reading of which nothing is captured: its ids do not say any boundary."""
    if reading.fault is None or any(boundary is not None for boundary in reading.captured):
        return
    raise InputError(
        f"{reading.convention} does not capture any of these boundaries for {architecture}: {reading.fault}",
        key=key,
        found=f"ids {list(reading.ids)}, boundaries {list(reading.boundaries)}",
        expected=f"a release of SGLang other than {reading.fault.first} to {reading.fault.last}",
    )
