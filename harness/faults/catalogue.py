"""The fault catalogue: mechanisms that lowered acceptance in public EAGLE-3 work, or hid that it was low.

Numbers are never given twice: an entry keeps its own when others come or go. A boundary k below is the aux hidden state
after block k.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["CATALOGUE", "CatalogueEntry"]


@dataclass(frozen=True)
class CatalogueEntry:
    """A mechanism that was found in the wild.

    Attributes:
        id: A letter for where it lives (A boundaries, B states, D weights, E vocabulary, F positions) and a number.
        mechanism: What went wrong.
        threads: Where it was reported; empty if there is no public thread.
    """

    id: str
    mechanism: str
    threads: tuple[str, ...] = ()


_ENTRIES = (
    CatalogueEntry("A0", "a draft trained on one set of boundaries is served another"),
    CatalogueEntry("A2", "every layer id is off by one", ("vllm#43671",)),
    CatalogueEntry("A9", "the same integer means before block i to one program and after block i to another"),
    CatalogueEntry("A16", "the last boundary is captured after the final norm", ("BaldEagle#18",)),
    CatalogueEntry("B1", "the residual is not added to what is captured", ("vllm#14464",)),
    CatalogueEntry("B3", "the last boundary is normed, and the draft expects it before the norm", ("speculators#313",)),
    CatalogueEntry(
        "B4", "the draft's recycled output is taken on the wrong side of its norm", ("vllm#46075", "vllm#47448")
    ),
    CatalogueEntry("B9", "states are captured in ascending order, whatever order the ids have"),
    CatalogueEntry(
        "B12", "the residual became a stream of its own, and the capture kept taking the other alone", ("sglang#39286",)
    ),
    CatalogueEntry("D6", "the target was quantised after the draft had been trained"),
    CatalogueEntry("E1", "draft ids are used as target ids, without the d2t map"),
    CatalogueEntry("F1", "every draft step gets the same position"),
)

CATALOGUE: Mapping[str, CatalogueEntry] = {entry.id: entry for entry in _ENTRIES}
"""The entries that faults are planted for so far, by id."""
