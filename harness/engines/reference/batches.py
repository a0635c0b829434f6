"""Which prompts run together: rows of like length, within a budget of padded tokens and of logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

__all__ = ["TOKENS", "batches", "pad"]

TOKENS = 1024
"""Most tokens of a batch if nothing else limits it."""
_LOGITS = 1 << 26


def batches(
    lengths: Sequence[int], logits_per_row: int, max_rows: int | None = None, *, tokens: int = TOKENS
) -> Iterator[list[int]]:
    """Yield lists of row indices, every index once, longest rows last.

    Args:
        lengths: Each row's tokens.
        logits_per_row: Logit values that a row keeps.
        max_rows: Most rows in a batch.
        tokens: Most tokens in a batch, padding included.
    """
    rows = max(1, min(_LOGITS // max(1, logits_per_row), max_rows or len(lengths)))
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: (lengths[index], index)):
        if batch and (len(batch) >= rows or (len(batch) + 1) * lengths[index] > tokens):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def pad(rows: Sequence[Sequence[int]], device: torch.device | str) -> Tensor:
    """Return int64 [B, T], rows padded on the right with 0."""
    width = max(len(row) for row in rows)
    return torch.tensor([[*row, *([0] * (width - len(row)))] for row in rows], dtype=torch.int64, device=device)
