"""Which of a pair's prompts a costly test runs."""

from __future__ import annotations

from harness.pair.pair import Pair, load_prompts
from harness.pair.prompts import Prompt

__all__ = ["shortest"]


def shortest(pair: Pair, count: int) -> list[Prompt]:
    """Return the shortest prompts: Triton's interpreter pays by the token, and so does a prefill on a CPU."""
    return sorted(load_prompts(pair), key=lambda prompt: (len(prompt.ids), prompt.id))[:count]
