"""Which tokens of a chain are accepted and which verify rounds count: one owner of both rules, for every engine.

Positions in a continuation are counted from 0, the token that prefill outputs. A round that starts at position i has
i+1 tokens before it, and counts if that is fewer than the limit, the prefill's token included (SGLang's rule).

The last round is counted in full, though it may run past the limit, so texts are k tokens longer than the limit. Such a
round is longer than most, because a long round is more likely to be the one that crosses the limit: dropping it, or
cutting it at the limit, biases the rate downwards. A round that outputs EOS is cut by the text and not by the draft. It
says nothing about the draft and is kept apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.counts.run import EosRound

__all__ = ["Limits", "RoundCounter", "accepted_prefix", "walk"]


@dataclass(frozen=True)
class Limits:
    """What ends a continuation.

    Attributes:
        max_new_tokens: The token limit, the prefill's token included.
        num_steps: Chain length k.
        eos_ids: Token ids that end a text.
    """

    max_new_tokens: int
    num_steps: int
    eos_ids: tuple[int, ...]

    @property
    def text_length(self) -> int:
        """How many tokens of a continuation rounds can reach: the limit, and a full round past it."""
        return self.max_new_tokens + self.num_steps

    def cut(self, text: Sequence[int]) -> tuple[int, ...]:
        """Return the text up to its first EOS, that token included, and no longer than `text_length`."""
        kept: list[int] = []
        for token in text[: self.text_length]:
            kept.append(int(token))
            if token in self.eos_ids:
                break
        return tuple(kept)

    def ended(self, text: Sequence[int]) -> bool:
        """Whether a cut text ends in EOS."""
        return bool(text) and text[-1] in self.eos_ids

    def starts(self, text: Sequence[int]) -> int:
        """Return n, the number of positions of a cut text at which a round could start."""
        # A round does not start at EOS, and never without at least one known token after it to compare with.
        last = len(text) - 1 if self.ended(text) else self.max_new_tokens - 1
        return max(0, min(last, self.max_new_tokens - 1, len(text) - 1))


def accepted_prefix(chain: Sequence[int], choices: Sequence[int]) -> int:
    """Return how many tokens of a chain are accepted: its longest prefix that equals the target's choices.

    Args:
        chain: The proposed tokens.
        choices: What the target chooses after the last known token and after each token of the chain. At the end of a
            text that EOS ended they are fewer than the chain, and what lies past them cannot be accepted.
    """
    pairs = enumerate(zip(chain, choices, strict=False))
    return next((index for index, (ours, chosen) in pairs if ours != chosen), min(len(chain), len(choices)))


class RoundCounter:
    """Collects one prompt's rounds as a decoder makes them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.rounds: list[int] = []
        self.eos_round: EosRound | None = None

    def add(self, proposed: int, accepted: int, emitted: Sequence[int]) -> tuple[int, ...]:
        """Count a round and return the tokens it adds to the text.

        Args:
            proposed: Length of the chain.
            accepted: How many of its tokens are accepted.
            emitted: The accepted tokens and the bonus token.
        """
        for index, token in enumerate(emitted):
            if token in self.limits.eos_ids:
                # Tokens after EOS were accepted for nothing: the text has ended.
                self.eos_round = EosRound(proposed, min(accepted, index + 1))
                return tuple(emitted[: index + 1])
        self.rounds.append(accepted)
        return tuple(emitted)


def walk(text: Sequence[int], proposals: NDArray[np.int64], limits: Limits) -> RoundCounter:
    """Walk a known text, taking at each round the chain that would have been proposed there.

    Greedy decoding outputs the same text whatever the draft proposes, so the chain of a round depends on its start
    alone. That is what makes one parallel forward over all positions equal to decoding round by round.

    Args:
        text: The continuation, cut by `limits`.
        proposals: int64 [n, k]: the chain at every position at which a round could start.
        limits: The limits by which the text was cut.

    Returns:
        The rounds, exactly as sequential decoding of this text makes them.
    """
    counter = RoundCounter(limits)
    position = 0
    while position < limits.starts(text) and counter.eos_round is None:
        accepted = accepted_prefix(proposals[position].tolist(), text[position + 1 :])
        emitted = text[position + 1 : position + accepted + 2]
        counter.add(limits.num_steps, accepted, emitted)
        position += accepted + 1
    return counter
