"""The lists of layer ids for which every class is asked."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NUM_LAYERS", "AskedIds", "asked_lists"]

NUM_LAYERS = 8
"""Blocks N of the target that is asked: enough for three different default ids, few enough to run."""

WHOLE_ENGINE = "first id 1"
"""The one list for which a whole engine is asked: each costs a start."""


@dataclass(frozen=True)
class AskedIds:
    """One list.

    Attributes:
        name: The property of the list that is tried.
        ids: The layer ids, `None` for the engine's own default.
    """

    name: str
    ids: tuple[int, ...] | None


def asked_lists(num_layers: int = NUM_LAYERS) -> tuple[AskedIds, ...]:
    """Return the lists for a target of `num_layers` blocks, N, at least 7: below that, default ids collide."""
    middle, last = num_layers // 2, num_layers
    return (
        AskedIds("none given", None),
        AskedIds("first id 1", (1, middle - 1, last - 2)),
        AskedIds("the default's boundaries, given", (2, middle, last - 3)),
        AskedIds("first id 0", (0, middle - 1, last - 2)),
        AskedIds("-1 for the embedding", (-1, 1, middle - 1)),
        AskedIds("N - 1 last", (1, middle - 1, last - 1)),
        AskedIds("N last", (2, middle, last)),
        AskedIds("unsorted", (last - 2, middle - 1, 1)),
        AskedIds("unsorted, first id 1", (1, last - 2, middle - 1)),
        AskedIds("repeated", (middle - 1, middle - 1, last - 2)),
        AskedIds("below the embedding", (-2, 1, middle - 1)),
        AskedIds("past the end", (1, middle - 1, last + 1)),
    )
