"""Whether the target agrees with a known text: one forward over prompt and text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from harness.counts.run import TargetCheck
from harness.engines.reference.batches import batches, pad
from harness.models.target import Target
from harness.pair.prompts import Prompt

__all__ = ["agreement", "forward_texts", "text_batches"]


def text_batches(
    target: Target, prompts: Sequence[Prompt], texts: Sequence[Sequence[int]], max_rows: int | None = None
) -> list[list[int]]:
    """Return which prompts go through one forward together with their texts."""
    lengths = [len(prompt.ids) + len(text) for prompt, text in zip(prompts, texts, strict=True)]
    longest = max((len(text) for text in texts), default=0)
    return list(batches(lengths, (longest + 64) * target.spec.vocab_size, max_rows))


@torch.inference_mode()
def agreement(target: Target, prompts: Sequence[Prompt], texts: Sequence[tuple[int, ...]]) -> list[TargetCheck]:
    """Return the target's agreement with each text."""
    result: list[TargetCheck | None] = [None] * len(prompts)
    for rows in text_batches(target, prompts, texts):
        checks, _ = forward_texts(target, [prompts[row] for row in rows], [texts[row] for row in rows])
        for row, check in zip(rows, checks, strict=True):
            result[row] = check
    return [check for check in result if check is not None]


def forward_texts(
    target: Target, prompts: Sequence[Prompt], texts: Sequence[tuple[int, ...]]
) -> tuple[list[TargetCheck], Tensor]:
    """Run the target over prompts and texts, one batch.

    Returns:
        Its agreement with each text, and the ids [B, T+1] whose first T positions it ran on.
    """
    # Right padding needs no mask: no real position ever sees what stands to its right.
    ids = pad([[*prompt.ids, *text] for prompt, text in zip(prompts, texts, strict=True)], target.device)
    length = ids.shape[1] - 1
    first = min(len(prompt.ids) for prompt in prompts) - 1
    logits = target.forward(ids[:, :-1], keep=length - first)
    highest, argmax = logits.max(-1)
    gaps = highest - torch.gather(logits, 2, ids[:, first + 1 :, None])[..., 0]
    agrees = (argmax == ids[:, first + 1 :]).cpu().numpy()
    gaps_array = gaps.float().cpu().numpy()
    checks = []
    for row, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
        where = slice(len(prompt.ids) - 1 - first, len(prompt.ids) - 1 - first + len(text))
        agree = agrees[row, where]
        checks.append(TargetCheck(agree, np.where(agree, np.float32(0), gaps_array[row, where])))
    return checks, ids
