"""Plain greedy decoding: the continuation that speculation must reproduce."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from transformers.cache_utils import DynamicCache

from harness.counts.rounds import Limits
from harness.engines.reference.batches import batches, pad
from harness.engines.reference.ragged_cache import RaggedCache
from harness.models.target import Target

__all__ = ["greedy_continuations"]


def greedy_continuations(
    target: Target,
    prompts: Sequence[Sequence[int]],
    limits: Limits,
    advance: Callable[[int], None] = lambda _count: None,
    found: Callable[[int, tuple[int, ...]], None] = lambda _row, _continuation: None,
) -> list[tuple[int, ...]]:
    """Decode each prompt greedily, in batches if the model's attention allows it.

    Args:
        target: The loaded target that generates.
        prompts: Token ids.
        limits: What ends a continuation; a continuation is `limits.text_length` tokens long unless EOS ends it.
        advance: Called with the number of prompts finished.
        found: Called with each prompt's row and its continuation as soon as that is known.

    Returns:
        The continuations, in the prompts' order.
    """
    continuations: list[tuple[int, ...]] = [()] * len(prompts)
    lengths = [len(prompt) + limits.text_length for prompt in prompts]
    for rows in batches(lengths, target.spec.vocab_size, None if target.full_attention else 1):
        batch = [prompts[row] for row in rows]
        decoded = (
            _decode_slots(target, batch, limits) if target.full_attention else [_decode_one(target, batch[0], limits)]
        )
        for row, continuation in zip(rows, decoded, strict=True):
            continuations[row] = limits.cut(continuation)
            found(row, continuations[row])
        advance(len(rows))
    return continuations


@torch.inference_mode()
def _decode_slots(target: Target, prompts: list[Sequence[int]], limits: Limits) -> list[list[int]]:
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=target.device)
    ids = pad(prompts, target.device)
    cache = RaggedCache(target.spec.num_layers, len(prompts), ids.shape[1] + limits.text_length)
    positions = torch.arange(ids.shape[1], device=target.device).expand_as(ids)
    continuations: list[list[int]] = [[] for _ in prompts]
    keep = ids.shape[1] - int(lengths.min()) + 1
    logits = target.forward(ids, cache=cache, mask=cache.at(positions, target.dtype), positions=positions, keep=keep)
    last = (lengths - 1 - (ids.shape[1] - keep))[:, None]
    tokens = torch.gather(logits.argmax(-1), 1, last)
    for _ in range(limits.text_length):
        for continuation, token in zip(continuations, tokens[:, 0].tolist(), strict=True):
            continuation.append(token)
        # The batch stops early only when every row has ended: rows that have ended are cut afterwards.
        if all(
            len(limits.cut(continuation)) < len(continuation) or limits.ended(continuation)
            for continuation in continuations
        ):
            break
        if len(continuations[0]) == limits.text_length:
            break
        at = (lengths + len(continuations[0]) - 1)[:, None]
        logits = target.forward(tokens, cache=cache, mask=cache.at(at, target.dtype), positions=at)
        tokens = logits[:, -1].argmax(-1, keepdim=True)
    return continuations


@torch.inference_mode()
def _decode_one(target: Target, prompt: Sequence[int], limits: Limits) -> list[int]:
    cache = DynamicCache(config=target.config)
    ids = pad([prompt], target.device)
    continuation: list[int] = []
    while len(continuation) < limits.text_length:
        token = target.forward(ids, cache=cache, keep=1)[0, -1].argmax()
        continuation.append(int(token))
        if limits.ended(continuation):
            break
        ids = token.reshape(1, 1)
    return continuation
