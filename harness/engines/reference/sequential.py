"""Sequential speculative decoding, one prompt at a time: the oracle that replay must equal, round by round.

Each round: the draft is extended with target states over the tokens that the last verification added, proposes a chain
of k tokens, and the target verifies chain and last token in one cached forward. The longest agreeing prefix is kept,
with the target's own next token as bonus.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from harness.counts.rounds import Limits, RoundCounter, accepted_prefix
from harness.counts.run import PromptRecord, histogram_of
from harness.engines.reference.draft_cache import DraftCache
from harness.models.draft import Eagle3Draft
from harness.models.target import Target
from harness.pair.prompts import Prompt

__all__ = ["Decoded", "decode_one", "propose", "sequential", "to_record"]


@dataclass
class Decoded:
    """One prompt, decoded.

    Attributes:
        text: The continuation, past the limit where the last round went past it.
        counter: Its rounds.
        chains: The chain proposed in each round, the EOS round included.
    """

    text: list[int]
    counter: RoundCounter
    chains: list[tuple[int, ...]] = field(default_factory=list)

    def going(self) -> bool:
        """Whether another round starts."""
        limits = self.counter.limits
        ended = self.counter.eos_round is not None or limits.ended(self.text)
        return not ended and len(self.text) < limits.max_new_tokens

    def verify(self, chain: Sequence[int], predicted: Sequence[int]) -> int:
        """Take one round's chain and the target's k+1 predictions; return the number of tokens accepted."""
        accepted = accepted_prefix(chain, predicted)
        self.chains.append(tuple(chain))
        self.text.extend(self.counter.add(len(chain), accepted, [*chain[:accepted], predicted[accepted]]))
        return accepted


def sequential(
    target: Target,
    draft: Eagle3Draft,
    boundaries: tuple[int, ...],
    prompts: Sequence[Prompt],
    limits: Limits,
    advance: Callable[[int], None] = lambda _: None,
) -> list[PromptRecord]:
    """Decode each prompt speculatively, one after the other.

    Args:
        target: The target.
        draft: The draft.
        boundaries: What is captured, in the order of concatenation.
        prompts: The prompts.
        limits: What ends a text, and the chain length.
        advance: Called with the number of prompts finished.

    Returns:
        Records in the prompts' order, without what only replay knows.
    """
    records = []
    for prompt in prompts:
        records.append(to_record(prompt, decode_one(target, draft, boundaries, prompt.ids, limits)))
        advance(1)
    return records


@torch.inference_mode()
def decode_one(
    target: Target, draft: Eagle3Draft, boundaries: tuple[int, ...], prompt: Sequence[int], limits: Limits
) -> Decoded:
    """Decode one prompt speculatively."""
    cache = DynamicCache(config=target.config)
    draft_cache = DraftCache(draft, 1, len(prompt) + limits.text_length + limits.num_steps)
    ids = torch.tensor([list(prompt)], device=target.device)
    with target.capture(boundaries) as capture:
        bonus = target.forward(ids, cache=cache, keep=1)[:, -1].argmax(-1, keepdim=True)
        states = capture.concatenated()
        decoded = Decoded([int(bonus)], RoundCounter(limits))
        following = torch.cat((ids[:, 1:], bonus), dim=1)
        position = 0
        while decoded.going():
            chain = propose(draft, draft_cache, following, states, position, limits.num_steps)
            position += following.shape[1]
            # Verify the last token known and the chain: k+1 tokens, from `position` on.
            verified = torch.cat((bonus, chain), dim=1)
            predicted = target.forward(verified, cache=cache).argmax(-1)
            accepted = decoded.verify(chain[0].tolist(), predicted[0].tolist())
            cache.crop(accepted - limits.num_steps)
            states = capture.concatenated()[:, : accepted + 1]
            bonus = predicted[:, accepted : accepted + 1]
            following = torch.cat((chain[:, :accepted], bonus), dim=1)
    return decoded


def propose(draft: Eagle3Draft, cache: DraftCache, following: Tensor, states: Tensor, first: int, steps: int) -> Tensor:
    """Extend the draft with target states and propose a chain.

    Args:
        draft: The draft.
        cache: Its cache, filled up to `first`.
        following: int64 [1, T]: the token after each new position.
        states: Concatenated boundaries [1, T, W] of the new positions.
        first: The first new position.
        steps: Chain length k.

    Returns:
        int64 [1, k], target ids.
    """
    hidden = cache.run(following, draft.fuse(states.to(draft.dtype)), first)[:, -1:]
    chain = [draft.to_target(draft.logits(hidden).argmax(-1))]
    for step in range(1, steps):
        hidden = cache.run(chain[-1], draft.recycle(hidden), first + following.shape[1] - 1 + step)
        chain.append(draft.to_target(draft.logits(hidden).argmax(-1)))
    return torch.cat(chain, dim=1)


def to_record(prompt: Prompt, decoded: Decoded) -> PromptRecord:
    """Return what a decoder knows of one prompt."""
    counter = decoded.counter
    return PromptRecord(
        id=prompt.id,
        category=prompt.category,
        prompt_hash=prompt.hash,
        prompt_tokens=len(prompt.ids),
        continuation=tuple(decoded.text),
        rounds=tuple(counter.rounds),
        histogram=histogram_of(counter.rounds, counter.limits.num_steps),
        eos_round=counter.eos_round,
        chains=tuple(decoded.chains),
    )
