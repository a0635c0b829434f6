"""Which faults a pair is tried with: wrong boundaries, wrong states, a wrong draft, another target.

Each fault is an object with its name, a description in words and the ids of the catalogue entries that are this very
mechanism. Tables of faults are read by these names and words, so they stay the same from page to page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import permutations
from typing import ClassVar

from torch import Tensor

from harness.engines.reference.loaded import LoadedPair
from harness.engines.reference.replay import StateFilter
from harness.faults import planting
from harness.models.draft import Eagle3Draft
from harness.models.target import Target

__all__ = [
    "BoundaryFault",
    "CaptureFault",
    "DraftFault",
    "Fault",
    "StateFault",
    "TargetFault",
    "as_list",
    "boundary_faults",
    "target_faults",
    "wrong_wires",
]


@dataclass(frozen=True)
class Fault:
    """A fault that can be put into a pair; the subclasses say where and how.

    Attributes:
        kind: `boundaries`, `states`, `capture`, `draft` or `target`.
        name: Its name in tables.
        what: What is wrong, in a few words or as boundaries.
        catalogue: Ids of the catalogue's entries that are this very mechanism, not merely one with the same effect.
    """

    kind: ClassVar[str]
    name: str
    what: str
    catalogue: tuple[str, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class BoundaryFault(Fault):
    """The draft reads other boundaries than it was trained on.

    Attributes:
        boundaries: In the order of concatenation.
    """

    kind = "boundaries"
    boundaries: tuple[int, ...]


@dataclass(frozen=True)
class StateFault(Fault):
    """The states of the right boundaries are changed before the draft reads them.

    Attributes:
        plant: Returns the change; `None` if this pair cannot have the fault.
    """

    kind = "states"
    plant: Callable[[LoadedPair], StateFilter | None]


@dataclass(frozen=True)
class CaptureFault(Fault):
    """Another tensor than the residual stream is captured at the right boundaries: the target has to run again.

    Attributes:
        plant: Returns a context manager that yields, by boundary, what the latest forward captured; `None` if this pair
            cannot have the fault.
    """

    kind = "capture"
    plant: Callable[[LoadedPair], AbstractContextManager[Mapping[int, Tensor]] | None]


@dataclass(frozen=True)
class DraftFault(Fault):
    """The draft reads the right states and computes something else.

    Attributes:
        plant: Returns such a draft, of the same weights; `None` if this pair cannot have the fault.
    """

    kind = "draft"
    plant: Callable[[LoadedPair], Eagle3Draft | None]


@dataclass(frozen=True)
class TargetFault(Fault):
    """The target computes in other numbers than those that the golden was recorded in.

    Attributes:
        plant: Returns a copy of the target in these numbers; `None` if they are its own.
    """

    kind = "target"
    plant: Callable[[LoadedPair], Target | None]


def boundary_faults(right: tuple[int, ...], layers: int, other: tuple[int, ...] | None) -> list[BoundaryFault]:
    """Return the wrong boundaries that layer ids can name.

    Args:
        right: The boundaries that the draft was trained on.
        layers: How many decoder blocks the target has.
        other: The boundaries that an incident serves, such as those of another draft of the same target; `None` leaves
            the incident out.

    Returns:
        Only boundaries that the target has and that differ from the right ones.
    """
    # Two programs that mean "before block i" and "after block i" by the same integer move every boundary by one.
    found = [
        _boundary_fault(f"all {step:+d}", tuple(boundary + step for boundary in right), "A2", "A9") for step in (1, -1)
    ]
    for slot in range(len(right)):
        for step in (1, -1):
            wrong = (*right[:slot], right[slot] + step, *right[slot + 1 :])
            found.append(_boundary_fault(f"slot {slot} {step:+d}", wrong))
    found.append(_boundary_fault("embedding first", (0, *right[1:])))
    if other is not None:
        found.append(_boundary_fault("the incident", other, "A0"))
    for order in permutations(range(len(right))):
        wrong = tuple(right[slot] for slot in order)
        # A capture loop goes through the blocks in ascending order: this is the one permutation it can make.
        catalogue = ("B9",) if wrong == tuple(sorted(right)) else ()
        found.append(_boundary_fault(f"permutation {''.join(map(str, order))}", wrong, *catalogue))
    return [
        fault
        for fault in found
        if fault.boundaries != right and all(0 <= boundary <= layers for boundary in fault.boundaries)
    ]


def _boundary_fault(name: str, wrong: tuple[int, ...], *catalogue: str) -> BoundaryFault:
    return BoundaryFault(name, as_list(wrong), wrong, catalogue=catalogue)


def as_list(boundaries: Sequence[int]) -> str:
    """Return boundaries as tables and messages write them."""
    return f"[{', '.join(map(str, boundaries))}]"


def wrong_wires(right: tuple[int, ...], layers: int, other: tuple[int, ...] | None) -> list[Fault]:
    """Return every wrong wire that a pair is tried with; arguments as for `boundary_faults`."""
    # What engines were reported to norm is the last boundary. On an earlier one the same arithmetic is no known fault.
    normed = ("A16", "B3") if right[-1] == layers else ()
    return [
        *boundary_faults(right, layers, other),
        StateFault(
            "post-norm last", "the target's norm on the last slot", planting.norm_on_last_slot, catalogue=normed
        ),
        DraftFault(
            "recycled post-norm",
            "steps 2 and on read the normed output",
            planting.recycled_post_norm,
            catalogue=("B4",),
        ),
        DraftFault(
            "recycled pre-norm",
            "steps 2 and on read the output before its norm",
            planting.recycled_pre_norm,
            catalogue=("B4",),
        ),
        DraftFault("d2t ignored", "draft ids taken for target ids", planting.ignored_map, catalogue=("E1",)),
        DraftFault(
            "positions stuck", "every step at the position of the first", planting.stuck_positions, catalogue=("F1",)
        ),
        CaptureFault(
            "residual dropped",
            "the last MLP's output alone in each slot",
            planting.dropped_residual,
            catalogue=("B1", "B12"),
        ),
    ]


def target_faults() -> list[TargetFault]:
    """Return the numbers that a pair's target is tried in.

    Arithmetic in bfloat16 is not a fault of its own: it shows how far a quantised target is from mere rounding.
    """
    return [
        TargetFault("bfloat16", "weights and arithmetic", planting.in_bfloat16),
        TargetFault("int8", "weights, a scale for each output", planting.in_int8, catalogue=("D6",)),
        TargetFault("4 bits", "weights, a scale for each 32 inputs", planting.in_4_bits, catalogue=("D6",)),
    ]
