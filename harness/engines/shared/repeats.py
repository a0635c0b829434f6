"""A pair measured several times by an engine that decodes: how far the engine differs from itself."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from harness.counts.chains import changed_chains, known_chains
from harness.counts.rounds import Limits
from harness.counts.run import PromptRecord, changed_windows
from harness.engines.base import NoiseSample

__all__ = ["in_order", "repeat_noise", "shuffled"]

_Item = TypeVar("_Item")


def shuffled(items: Sequence[_Item], seed: int) -> list[_Item]:
    """Return items in another order, the same one every time."""
    result = list(items)
    random.Random(seed).shuffle(result)  # noqa: S311 - an order, not a secret
    return result


def in_order(records: Sequence[PromptRecord], like: Sequence[PromptRecord]) -> tuple[PromptRecord, ...]:
    """Return the records of the prompts in `like`, in its order."""
    by_id = {record.id: record for record in records}
    return tuple(by_id[record.id] for record in like)


def repeat_noise(
    first: Sequence[PromptRecord], second: Sequence[PromptRecord], limits: Limits, how: str
) -> NoiseSample | None:
    """Return what a second run of an engine proposes differently; `None` if it does not know its chains.

    Args:
        first: Records of a run.
        second: Those of the same prompts in another run, in the same order.
        limits: What ends a text.
        how: How the second run was made, in words.
    """
    k, counts = limits.num_steps, []
    for before, after in zip(first, second, strict=True):
        chains = known_chains(before, limits.starts(before.continuation), k)
        rows = None if chains is None else changed_chains(after, before.continuation, chains)
        if rows is None:
            return None
        counts.append(changed_windows(rows, k))
    # An engine that decodes does not report log-probabilities, so nothing is ever compared with theirs.
    return NoiseSample(how, tuple(counts), 0.0) if any(whole for _, whole in counts) else None
