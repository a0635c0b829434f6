"""Plain greedy decoding: the continuation that speculation must reproduce."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from harness.counts.rounds import Limits
from harness.engines.reference.batches import batches, pad
from harness.engines.reference.cache_trials import LEAST_PROMPT, CacheUse, decodes_together, fault_of
from harness.engines.reference.memory import batch_tokens, is_out_of_memory
from harness.engines.reference.ragged_cache import RaggedCache
from harness.engines.reference.target_cache import positions_of
from harness.models.target import Target

__all__ = ["greedy_continuations"]


def greedy_continuations(
    target: Target,
    prompts: Sequence[Sequence[int]],
    limits: Limits,
    advance: Callable[[int], None] = lambda _count: None,
    found: Callable[[int, tuple[int, ...]], None] = lambda _row, _continuation: None,
    told: Callable[[str], None] = lambda _note: None,
    tokens: int | None = None,
) -> list[tuple[int, ...]]:
    """Decode each prompt greedily: in batches, alone, or without a cache, by what computes the target's own logits.

    Args:
        target: The loaded target that generates.
        prompts: Token ids.
        limits: What ends a continuation; a continuation is `limits.text_length` tokens long unless EOS ends it.
        advance: Called with the number of prompts finished.
        found: Called with each prompt's row and its continuation as soon as that is known.
        told: Called with a note if a batch did not fit in memory, and was halved, or if no cache could be used.
        tokens: Most tokens of a batch, padding included; by the memory that is free if `None`.

    Returns:
        The continuations, in the prompts' order.
    """
    continuations: list[tuple[int, ...]] = [()] * len(prompts)
    lengths = [len(prompt) + limits.text_length for prompt in prompts]
    budget = batch_tokens(target) if tokens is None else tokens
    together = decodes_together(target)
    if not together and (fault := fault_of(target, CacheUse.ALONE)) is not None:
        told(f"each token was decoded from the whole text before it, without a cache, because of the target's: {fault}")
    waiting = list(batches(lengths, target.spec.vocab_size, None if together else 1, tokens=budget))
    while waiting:
        rows = waiting.pop(0)
        batch = [prompts[row] for row in rows]
        try:
            decoded = _decode_slots(target, batch, limits) if together else [_decode_one(target, batch[0], limits)]
        except Exception as error:
            if not is_out_of_memory(error) or len(rows) == 1:
                raise
            middle = len(rows) // 2
            told(f"{len(rows)} prompts at once did not fit in memory: decoded in halves")
            waiting[:0] = [rows[:middle], rows[middle:]]
            continue
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
    if ids.shape[1] > 1:
        # All tokens but each prompt's last, whose logits are the first that matter: rows end at different positions,
        # and logits of all of them at all of these positions would not fit in memory with a large vocabulary.
        positions = torch.arange(ids.shape[1] - 1, device=target.device).expand(len(prompts), -1)
        mask = cache.at(positions, target.dtype)
        target.forward(ids[:, :-1], cache=cache, mask=mask, positions=positions, keep=1)
    tokens = torch.gather(ids, 1, lengths[:, None] - 1)
    made: list[Tensor] = []
    ended = torch.zeros(len(prompts), dtype=torch.bool, device=target.device)
    ends = torch.tensor(limits.eos_ids, device=target.device, dtype=torch.int64)
    while len(made) < limits.text_length:
        at = (lengths + len(made) - 1)[:, None]
        logits = target.forward(tokens, cache=cache, mask=cache.at(at, target.dtype), positions=at)
        tokens = logits[:, -1].argmax(-1, keepdim=True)
        made.append(tokens)
        if len(ends):
            # The batch stops early only when every row has ended: rows that have ended are cut afterwards.
            ended |= torch.isin(tokens[:, 0], ends)
            if bool(ended.all()):
                break
    return list(torch.cat(made, dim=1).tolist()) if made else [[] for _ in prompts]


@torch.inference_mode()
def _decode_one(target: Target, prompt: Sequence[int], limits: Limits) -> list[int]:
    cache = DynamicCache(config=target.config) if fault_of(target, CacheUse.ALONE) is None else None
    ids = pad([prompt], target.device)
    position = 0
    continuation: list[int] = []
    while len(continuation) < limits.text_length:
        used = cache if position or ids.shape[1] >= LEAST_PROMPT else None
        token = target.forward(ids, cache=used, positions=positions_of(ids, position), keep=1)[0, -1].argmax()
        continuation.append(int(token))
        if limits.ended(continuation):
            break
        if used is None:
            ids = torch.cat((ids, token.reshape(1, 1)), dim=1)
        else:
            position += ids.shape[1]
            ids = token.reshape(1, 1)
    return continuation
