"""What the harness asks of an engine, and the engines by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.errors import InputError
from harness.pair.pair import Pair
from harness.pair.prompts import Prompt
from harness.record import Run

__all__ = ["ENGINES", "Engine", "Progress", "Texts", "find_engine", "split_engine"]

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


ENGINES = ("reference", "reference:replay", "reference:sequential", "reference:batched")


def split_engine(name: str) -> tuple[str, str]:
    """Return an engine's name and mode.

    Raises:
        InputError: There is no such engine.
    """
    if name not in ENGINES:
        raise InputError("no such engine", key="engine", found=name, expected=" or ".join(ENGINES))
    base, _, mode = name.partition(":")
    return base, mode or "replay"


def find_engine(name: str) -> Engine:
    """Return the engine called `name`.

    Raises:
        InputError: There is no such engine.
    """
    _, mode = split_engine(name)
    # Imported here: torch and transformers take seconds, and only a run needs them.
    from harness.engines.reference.engine import ReferenceEngine

    return ReferenceEngine(mode)
