"""What an engine that decodes knows at its own rounds, next to what is known of a text at every position.

Such an engine computes a chain where one of its rounds starts, and each step of it reads the draft's own tokens. As
long as these are the text's, the step is the one that a replay of the text computes: both can be compared. Past the
first token of the chain that is not the text's, and past the first token at which two texts differ, they cannot.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from harness.counts.chains import shared_length
from harness.counts.rounds import accepted_prefix
from harness.counts.run import PromptRecord

__all__ = ["comparable_logprobs", "comparable_sketches", "same_inputs"]


def same_inputs(chain: Sequence[int], text: Sequence[int], start: int) -> int:
    """Return how many steps of a chain read the text's tokens only.

    Args:
        chain: The k tokens proposed.
        text: The text that was decoded.
        start: The position of the last token that the round knew. Step s reads the token at `start + s`.
    """
    # The last step's token is not an input of anything.
    return min(1 + accepted_prefix(chain[:-1], text[start + 1 :]), len(text) - start)


def comparable_logprobs(
    record: PromptRecord, text: Sequence[int] | NDArray[np.int32], starts: int
) -> NDArray[np.bool_]:
    """Return which log-probabilities of a text's tokens a record has.

    Args:
        record: A record with log-probabilities.
        text: The text that it is compared on.
        starts: n, the number of the text's positions at which a round could start.

    Returns:
        bool [n, k]; all are true for an engine that measures a known text.
    """
    assert record.logprobs is not None
    count, k = record.logprobs.shape
    if record.proposals is not None:
        return np.ones((starts, k), np.bool_)
    known = np.zeros((starts, k), np.bool_)
    common = min(count, starts)
    # NaN means "not asked". What was computed and is not a number is infinite.
    known[:common] = ~np.isnan(record.logprobs[:common])
    # Step s at position i scores the token after the one that it reads.
    known &= np.arange(starts)[:, None] + 1 + np.arange(k) < shared_length(record.continuation, text)
    return known


def comparable_sketches(
    record: PromptRecord,
    text: Sequence[int] | NDArray[np.int32],
    sampled: tuple[Sequence[int], Sequence[int]],
    k: int,
) -> NDArray[np.bool_]:
    """Return which sketches of a record were taken on a text.

    Args:
        record: A record with sketches.
        text: The text that they are compared on.
        sampled: The sampled positions of the record's own text, and those of `text`.
        k: Chain length; the last k stages are the draft's steps.

    Returns:
        bool [POSITIONS, stages]; all are true for an engine that takes every sketch.
    """
    assert record.sketches is not None
    known = np.ones(record.sketches.shape[:2], np.bool_)
    if record.sketched is None:
        return known
    ours, theirs = (np.array(positions) for positions in sampled)
    same = shared_length(record.continuation, text)
    known &= record.sketched & ((ours == theirs) & (theirs < same))[:, None]
    known[:, -k:] &= theirs[:, None] + np.arange(k) < same
    return known
