"""What the harness asks of an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.pair.pair import Pair
from harness.pair.prompts import Prompt
from harness.record import Run

__all__ = ["Engine", "Progress", "Texts"]

# Continuations by prompt id.
Texts = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Progress:
    """Where an engine tells how far it is.

    Attributes:
        begin: Called with what begins and how many prompts it goes through.
        advance: Called with the number of prompts just finished.
    """

    begin: Callable[[str, int], None] = lambda _what, _total: None
    advance: Callable[[int], None] = lambda _count: None


class Engine(Protocol):
    """Turns a pair and its prompts into records."""

    def run(self, pair: Pair, prompts: Sequence[Prompt], texts: Texts | None, progress: Progress) -> Run:
        """Run the pair.

        Args:
            pair: The pair, with the engine settings to use.
            prompts: The prompts.
            texts: The golden continuations, on which an engine that replays measures; it decodes where it is `None`.
            progress: Where to tell how far it is.
        """
        ...
