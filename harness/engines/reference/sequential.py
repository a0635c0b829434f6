"""Sequential speculative decoding, one prompt at a time: the oracle that replay must equal, round by round.

Each round: the draft is extended with target states over the tokens that the last verification added, proposes a chain
of k tokens, and the target verifies chain and last token in one cached forward. The longest agreeing prefix is kept,
with the target's own next token as bonus.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from harness.counts.rounds import RoundCounter
from harness.counts.run import PromptRecord
from harness.engines.reference.cache_trials import require_revocable
from harness.engines.reference.draft_cache import DraftCache
from harness.engines.reference.loaded import LoadedModels
from harness.engines.reference.round_views import Proposed, RoundViewer
from harness.engines.reference.target_cache import growing_cache, keep_first, positions_of
from harness.engines.shared.decoded import Decoded, to_record
from harness.models.draft import Eagle3Draft
from harness.pair.prompts import Prompt

__all__ = ["decode_one", "propose", "sequential"]


def sequential(
    loaded: LoadedModels, prompts: Sequence[Prompt], advance: Callable[[int], None] = lambda _count: None
) -> list[PromptRecord]:
    """Decode each prompt speculatively, one after the other.

    Args:
        loaded: The models.
        prompts: What to decode, one after the other.
        advance: Called with the number of prompts finished.

    Returns:
        Records in the prompts' order, with log-probabilities and sketches at their own rounds only.

    Raises:
        InputError: The target cannot take a rejected token back.
    """
    require_revocable(loaded)
    records = []
    for prompt in prompts:
        records.append(to_record(prompt, decode_one(loaded, prompt.ids)))
        advance(1)
    return records


@torch.inference_mode()
def decode_one(loaded: LoadedModels, prompt: Sequence[int]) -> Decoded:
    """Decode one prompt, given as token ids, speculatively."""
    target, draft, limits = loaded.target, loaded.draft, loaded.limits
    cache = growing_cache()
    draft_cache = DraftCache(draft, 1, len(prompt) + limits.text_length + limits.num_steps)
    viewer = RoundViewer(loaded)
    ids = torch.tensor([list(prompt)], device=target.device)
    with target.capture(loaded.boundaries) as capture:
        bonus = target.forward(ids, cache=cache, positions=positions_of(ids, 0), keep=1)[:, -1].argmax(-1, keepdim=True)
        states = capture.concatenated()
        decoded = Decoded([int(bonus)], RoundCounter(limits))
        following = torch.cat((ids[:, 1:], bonus), dim=1)
        position = 0
        while decoded.going():
            proposed = propose(draft, draft_cache, following, states, position, limits.num_steps)
            chain = proposed.chain
            position += following.shape[1]
            # Verify the last token known and the chain: k+1 tokens, from `position` on.
            verified = torch.cat((bonus, chain), dim=1)
            predicted = target.forward(verified, cache=cache, positions=positions_of(verified, position)).argmax(-1)
            accepted = decoded.verify(chain[0].tolist(), predicted[0].tolist())
            decoded.views += viewer.views(proposed, predicted)
            # Drop the keys of the rejected tokens; those of the accepted ones and of the last known token stay.
            keep_first(cache, position + accepted + 1)
            states = capture.concatenated()[:, : accepted + 1]
            bonus = predicted[:, accepted : accepted + 1]
            following = torch.cat((chain[:, :accepted], bonus), dim=1)
    return decoded


def propose(
    draft: Eagle3Draft, cache: DraftCache, following: Tensor, states: Tensor, first: int, steps: int
) -> Proposed:
    """Extend the draft with target states and propose a chain.

    Args:
        draft: The loaded draft that proposes.
        cache: Its cache, filled up to `first`.
        following: int64 [1, T]: the token after each new position.
        states: Concatenated boundaries [1, T, W] of the new positions.
        first: The first new position.
        steps: Chain length k.
    """
    fused = draft.fuse(states.to(draft.dtype))
    hidden = cache.run(following, fused, first)[:, -1:]
    logits = [draft.logits(hidden)]
    chain = [draft.to_target(logits[-1].argmax(-1))]
    for step in range(1, steps):
        hidden = cache.run(chain[-1], draft.recycle(hidden), first + following.shape[1] - 1 + step)
        logits.append(draft.logits(hidden))
        chain.append(draft.to_target(logits[-1].argmax(-1)))
    return Proposed(torch.cat(chain, dim=1), states[:, -1:], fused[:, -1:], torch.cat(logits, dim=1))
