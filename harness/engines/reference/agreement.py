"""Whether the target agrees with a known continuation: one forward over prompt and continuation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from harness.counts.run import TargetCheck
from harness.engines.reference.batches import batches, pad
from harness.models.target import Target
from harness.pair.prompts import Prompt

__all__ = ["ReferenceTarget", "agreement", "continuation_batches", "forward_continuations"]

Tokens = tuple[int, ...]


def continuation_batches(
    target: Target, prompts: Sequence[Prompt], continuations: Sequence[Sequence[int]], max_rows: int | None = None
) -> list[list[int]]:
    """Return which prompts go through one forward together with their continuations."""
    lengths = [len(prompt.ids) + len(continuation) for prompt, continuation in zip(prompts, continuations, strict=True)]
    longest = max((len(continuation) for continuation in continuations), default=0)
    return list(batches(lengths, (longest + 64) * target.spec.vocab_size, max_rows))


@torch.inference_mode()
def agreement(target: Target, prompts: Sequence[Prompt], continuations: Sequence[Tokens]) -> list[TargetCheck]:
    """Return the target's agreement with each continuation."""
    result: list[TargetCheck | None] = [None] * len(prompts)
    for rows in continuation_batches(target, prompts, continuations):
        checks, _ = forward_continuations(target, [prompts[row] for row in rows], [continuations[row] for row in rows])
        for row, check in zip(rows, checks, strict=True):
            result[row] = check
    return [check for check in result if check is not None]


def forward_continuations(
    target: Target, prompts: Sequence[Prompt], continuations: Sequence[Tokens]
) -> tuple[list[TargetCheck], Tensor]:
    """Run the target over prompts and continuations, one batch.

    Returns:
        Its agreement with each continuation, and the ids [B, T+1] whose first T positions it ran on.
    """
    # Right padding needs no mask: no real position ever sees what is to its right.
    ids = pad(
        [[*prompt.ids, *continuation] for prompt, continuation in zip(prompts, continuations, strict=True)],
        target.device,
    )
    length = ids.shape[1] - 1
    first = min(len(prompt.ids) for prompt in prompts) - 1
    logits = target.forward(ids[:, :-1], keep=length - first)
    highest, argmax = logits.max(-1)
    gaps = highest - torch.gather(logits, 2, ids[:, first + 1 :, None])[..., 0]
    agrees = (argmax == ids[:, first + 1 :]).cpu().numpy()
    gaps_array = gaps.float().cpu().numpy()
    checks = []
    for row, (prompt, continuation) in enumerate(zip(prompts, continuations, strict=True)):
        where = slice(len(prompt.ids) - 1 - first, len(prompt.ids) - 1 - first + len(continuation))
        agree = agrees[row, where]
        checks.append(TargetCheck(agree, np.where(agree, np.float32(0), gaps_array[row, where])))
    return checks, ids


class ReferenceTarget:
    """The loaded target as a judge; see `harness.engines.shared.judging.TargetJudge`.

    Args:
        target: The loaded target whose argmax is the reference.
    """

    def __init__(self, target: Target) -> None:
        self._target = target

    def agreement(self, prompts: Sequence[Prompt], continuations: Sequence[Tokens]) -> list[TargetCheck]:
        """Return the target's agreement with each continuation."""
        return agreement(self._target, prompts, continuations)

    def forget(self) -> None:
        """Do nothing: nothing is cached from one forward to the next."""
