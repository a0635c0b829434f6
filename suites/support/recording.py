"""A recording by an engine alone, without the standards that a golden must meet."""

from __future__ import annotations

from collections.abc import Sequence

from harness.counts.run import PromptRecord
from harness.engines.base import Continuations
from harness.pair.prompts import Prompt

__all__ = ["Anything"]


class Anything:
    """A guide that accepts whatever a golden would be made of."""

    def known(self, _prompts: Sequence[Prompt]) -> Continuations:
        """Return no text of an earlier attempt."""
        return {}

    def decoded(self, _prompt: Prompt, _continuation: tuple[int, ...]) -> bool:
        """Keep every prompt."""
        return True

    def measured(self, _records: Sequence[PromptRecord]) -> None:
        """Accept every record."""
