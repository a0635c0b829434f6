"""The difference between two goldens, prompt by prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.counts.acceptance import PromptCounts
from harness.golden.store import Golden

__all__ = ["Difference", "PromptDifference", "difference"]


@dataclass(frozen=True)
class PromptDifference:
    """One prompt that two goldens measured differently.

    Attributes:
        id: Its id in both goldens.
        before: Accepted and proposed tokens in the first golden.
        after: The same, in the second golden.
        text: Whether the reference continuations differ.
        proposals: Positions at which the proposed chains differ; `None` if that cannot be asked, because the
            continuations differ or one of the goldens does not have proposals.
    """

    id: str
    before: tuple[int, int]
    after: tuple[int, int]
    text: bool
    proposals: int | None


@dataclass(frozen=True)
class Difference:
    """Everything in which the measurements of two goldens differ.

    Attributes:
        before: The first golden.
        after: The second golden.
        prompts: Prompts of both that were measured differently.
        removed: Ids that only the first golden has.
        added: Ids that only the second golden has.
        settings: Settings, wiring and floors that differ, as (before, after).
    """

    before: Golden
    after: Golden
    prompts: tuple[PromptDifference, ...]
    removed: tuple[str, ...]
    added: tuple[str, ...]
    settings: dict[str, tuple[Any, Any]]

    @property
    def same(self) -> bool:
        """Whether neither the measurements nor the settings, wiring and floors behind them differ."""
        return not (self.prompts or self.removed or self.added or self.settings)


def difference(before: Golden, after: Golden) -> Difference:
    """Compare two goldens; their dates, reasons, machines and file hashes do not count."""
    first, second = ({prompt.id: prompt.counts() for prompt in side.document.prompts} for side in (before, after))
    changed = (_prompt(before, after, (first[name], second[name])) for name in first if name in second)
    return Difference(
        before,
        after,
        tuple(prompt for prompt in changed if prompt is not None),
        tuple(name for name in first if name not in second),
        tuple(name for name in second if name not in first),
        _settings(before, after),
    )


def _settings(before: Golden, after: Golden) -> dict[str, tuple[Any, Any]]:
    names = ("pair", "engine", "device", "dtype", "floor", "target", "wiring", "decode")
    sides = (before.document.model_dump(mode="json"), after.document.model_dump(mode="json"))
    return {name: (sides[0][name], sides[1][name]) for name in names if sides[0][name] != sides[1][name]}


def _prompt(before: Golden, after: Golden, counts: tuple[PromptCounts, PromptCounts]) -> PromptDifference | None:
    name = counts[0].id
    first, second = before.tensors[name], after.tensors[name]
    text = not np.array_equal(first.continuation, second.continuation)
    proposals = None
    if not text and first.proposals is not None and second.proposals is not None:
        same_shape = first.proposals.shape == second.proposals.shape
        proposals = int((first.proposals != second.proposals).any(axis=1).sum()) if same_shape else None
    if counts[0] == counts[1] and not text and not proposals:
        return None
    accepted = [(side.accepted, side.proposed) for side in counts]
    return PromptDifference(name, accepted[0], accepted[1], text, proposals)
