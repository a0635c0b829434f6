"""SGLang's speculative counters of one request, as counts: the one reader of `meta_info`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.errors import EngineError

__all__ = ["Counters", "read_counters"]

_ROUNDS, _CORRECT, _PROPOSED = "spec_verify_ct", "spec_num_correct_drafts", "spec_num_proposed_drafts"
_RATE, _HISTOGRAM = "spec_accept_rate", "spec_correct_drafts_histogram"


@dataclass(frozen=True)
class Counters:
    """What SGLang counted for one request.

    Attributes:
        rounds: Verify rounds.
        correct: Tokens accepted over all rounds, bonus tokens left out, those past the token limit included.
        proposed: Tokens proposed; for a tree its nodes.
        histogram: Rounds by number accepted, `num_steps + 1` entries.
    """

    rounds: int
    correct: int
    proposed: int
    histogram: tuple[int, ...]


def read_counters(meta: Mapping[str, Any], *, num_steps: int, num_draft_tokens: int) -> Counters:
    """Read the counters of one request, and check them against each other.

    Args:
        meta: `meta_info` of SGLang's answer.
        num_steps: The most tokens a round can accept.
        num_draft_tokens: Tokens verified in a round, the last known one included.

    Raises:
        EngineError: A counter is missing, or two of them contradict each other: whatever was counted, it is not what
            the harness takes it for.
    """
    if not meta.get(_ROUNDS):
        # SGLang leaves all of them out if there was no round: one token was asked for.
        return Counters(0, 0, 0, (0,) * (num_steps + 1))
    missing = [name for name in (_CORRECT, _PROPOSED, _RATE, _HISTOGRAM) if name not in meta]
    if missing:
        raise EngineError(
            f"SGLang's answer has {_ROUNDS} = {meta[_ROUNDS]} and lacks {', '.join(missing)}: this version counts in "
            "another way"
        )
    rounds, correct, proposed = int(meta[_ROUNDS]), int(meta[_CORRECT]), int(meta[_PROPOSED])
    histogram = tuple(int(count) for count in meta[_HISTOGRAM])
    identities = (
        (f"sum of {_HISTOGRAM}", sum(histogram), _ROUNDS, rounds),
        (f"sum of k times {_HISTOGRAM}[k]", sum(k * count for k, count in enumerate(histogram)), _CORRECT, correct),
        (f"{_ROUNDS} times {num_draft_tokens - 1}", rounds * (num_draft_tokens - 1), _PROPOSED, proposed),
    )
    for left, found, right, expected in identities:
        if found != expected:
            raise EngineError(f"SGLang's counters contradict each other: {left} is {found}, {right} is {expected}")
    if not math.isclose(float(meta[_RATE]), correct / proposed, abs_tol=1e-9):
        raise EngineError(
            f"SGLang's counters contradict each other: {_RATE} is {meta[_RATE]}, {_CORRECT} / {_PROPOSED} is "
            f"{correct} / {proposed}"
        )
    if len(histogram) > num_steps + 1:
        raise EngineError(
            f"SGLang counted a round of {len(histogram) - 1} accepted tokens, but only {num_steps} can be proposed"
        )
    return Counters(rounds, correct, proposed, histogram + (0,) * (num_steps + 1 - len(histogram)))
