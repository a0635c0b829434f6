"""Sequential speculative decoding of many prompts together, each row at its own position."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from harness.counts.rounds import RoundCounter
from harness.counts.run import PromptRecord
from harness.engines.reference.batches import batches, pad
from harness.engines.reference.cache_trials import decodes_together, require_revocable
from harness.engines.reference.draft_cache import DraftCache
from harness.engines.reference.loaded import LoadedModels
from harness.engines.reference.ragged_cache import RaggedCache
from harness.engines.reference.round_views import Proposed, RoundViewer
from harness.engines.reference.sequential import decode_one
from harness.engines.shared.decoded import Decoded, to_record
from harness.models.draft import Eagle3Draft
from harness.pair.prompts import Prompt

__all__ = ["batched", "decode_batch"]


def batched(
    loaded: LoadedModels, prompts: Sequence[Prompt], advance: Callable[[int], None] = lambda _count: None
) -> list[PromptRecord]:
    """Decode prompts speculatively in batches; arguments and result are those of `sequential`.

    A target with windowed attention, or with which padding does not work, is decoded one prompt at a time.
    """
    require_revocable(loaded)
    target, limits = loaded.target, loaded.limits
    together = decodes_together(target)
    records: list[PromptRecord | None] = [None] * len(prompts)
    lengths = [len(prompt.ids) + limits.text_length for prompt in prompts]
    for rows in batches(lengths, (limits.num_steps + 1) * target.spec.vocab_size):
        ids = [prompts[row].ids for row in rows]
        decoded = decode_batch(loaded, ids) if together else [decode_one(loaded, one) for one in ids]
        for row, result in zip(rows, decoded, strict=True):
            records[row] = to_record(prompts[row], result)
        advance(len(rows))
    return [record for record in records if record is not None]


@torch.inference_mode()
def decode_batch(loaded: LoadedModels, prompts: Sequence[Sequence[int]]) -> list[Decoded]:
    """Decode a batch of prompts, given as token ids; a row that has finished idles at its last position."""
    target, draft, limits = loaded.target, loaded.draft, loaded.limits
    steps, device = limits.num_steps, target.device
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    ids = pad(prompts, device)
    capacity = ids.shape[1] + limits.text_length + steps + 1
    cache = RaggedCache(target.spec.num_layers, len(prompts), capacity)
    draft_cache = DraftCache(draft, len(prompts), capacity)
    viewer = RoundViewer(loaded)
    positions = torch.arange(ids.shape[1], device=device).expand_as(ids)
    with target.capture(loaded.boundaries) as capture:
        mask = cache.at(positions, target.dtype)
        # Rows end at different positions: logits are kept from the shortest row's last token on.
        keep = ids.shape[1] - int(lengths.min()) + 1
        predicted = target.forward(ids, cache=cache, mask=mask, positions=positions, keep=keep).argmax(-1)
        bonus = torch.gather(predicted, 1, (lengths - 1 - (ids.shape[1] - keep))[:, None])
        results = [Decoded([token], RoundCounter(limits)) for token in bonus[:, 0].tolist()]
        # The token after each position; past a row's end it is padding, and its key is written over later.
        following = torch.cat((ids[:, 1:], ids[:, :1]), dim=1).scatter(1, lengths[:, None] - 1, bonus)
        states, added = capture.concatenated(), lengths
        while any(result.going() for result in results):
            proposed = _propose(draft, draft_cache, following, states, positions, added, steps)
            chain = proposed.chain
            start = torch.gather(positions, 1, added[:, None] - 1) + 1
            verified = torch.cat((bonus, chain), dim=1)
            positions = start + torch.arange(steps + 1, device=device)
            mask = cache.at(positions, target.dtype)
            predicted = target.forward(verified, cache=cache, mask=mask, positions=positions).argmax(-1)
            accepted = _verify(results, proposed, predicted, viewer)
            # Finished rows stay in the batch, since removing them would copy every cache.
            going = torch.tensor([result.going() for result in results], device=device)
            bonus = torch.gather(predicted, 1, accepted[:, None])
            following = torch.cat((chain, bonus), dim=1).scatter(1, accepted[:, None], bonus)
            states = capture.concatenated()
            added = accepted + 1
            # A finished row repeats its last round, within the cache's capacity.
            positions = torch.where(going[:, None], positions, positions - added[:, None])
    return results


def _verify(results: list[Decoded], proposed: Proposed, predicted: Tensor, viewer: RoundViewer) -> Tensor:
    """Give each unfinished row its round; return the accepted counts, int64 [B]."""
    accepted = []
    for result, chain, tokens, view in zip(
        results, proposed.chain.tolist(), predicted.tolist(), viewer.views(proposed, predicted), strict=True
    ):
        if result.going():
            accepted.append(result.verify(chain, tokens))
            result.views.append(view)
        else:
            accepted.append(0)
    return torch.tensor(accepted, device=predicted.device)


def _propose(
    draft: Eagle3Draft,
    cache: DraftCache,
    following: Tensor,
    states: Tensor,
    positions: Tensor,
    added: Tensor,
    steps: int,
) -> Proposed:
    """Extend the draft with target states and propose a chain in each row.

    Args:
        draft: The loaded draft that proposes.
        cache: The draft's keys and values so far, one row for each prompt.
        following: int64 [B, T]: the token after each new position.
        states: Concatenated boundaries [B, T, W].
        positions: int64 [B, T].
        added: int64 [B]: how many of the T positions are real in each row.
        steps: Chain length k.
    """
    last = added[:, None] - 1
    fused = draft.fuse(states.to(draft.dtype))
    hidden = _at(cache.run_ragged(following, fused, positions), last)
    position = torch.gather(positions, 1, last)
    logits = [draft.logits(hidden)]
    chain = [draft.to_target(logits[-1].argmax(-1))]
    for step in range(1, steps):
        hidden = cache.run_ragged(chain[-1], draft.recycle(hidden), position + step)
        logits.append(draft.logits(hidden))
        chain.append(draft.to_target(logits[-1].argmax(-1)))
    return Proposed(torch.cat(chain, dim=1), _at(states, last), _at(fused, last), torch.cat(logits, dim=1))


def _at(values: Tensor, index: Tensor) -> Tensor:
    """Return positions int64 [B, 1] of values [B, T, W]."""
    return torch.gather(values, 1, index[..., None].expand(-1, -1, values.shape[-1]))
