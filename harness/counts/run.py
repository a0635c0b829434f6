"""What every engine returns: one record a prompt, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["EosRound", "PromptRecord", "Run", "TargetCheck", "changed_windows", "histogram_of"]


@dataclass(frozen=True)
class EosRound:
    """The round that put out the end of the text. It is cut by the text, not by the draft, so it is kept apart.

    Attributes:
        proposed: Tokens proposed.
        accepted: Tokens accepted, up to the end of the text.
    """

    proposed: int
    accepted: int


@dataclass(frozen=True)
class TargetCheck:
    """The target's own argmax along a text.

    Attributes:
        agrees: bool [n]; whether the argmax at each position of the text is the text's token.
        gaps: float32 [n]; the greatest logit less the text's token's, 0 where they agree.
    """

    agrees: NDArray[np.bool_]
    gaps: NDArray[np.float32]


@dataclass(frozen=True)
class PromptRecord:
    """One prompt's measurement.

    Attributes:
        id: The prompt's id.
        category: Its category.
        prompt_hash: Hash of its token ids.
        prompt_tokens: How many there are.
        continuation: The continuation that rounds were counted on, tokens past the limit included.
        rounds: Accepted count of each verify round in order, the round that ended in EOS left out; `None` where the
            engine knows no order.
        histogram: Rounds by accepted count, k+1 entries.
        eos_round: The round that ended in EOS, if one did.
        proposals: int64 [n, k]: the chain proposed at each of the n positions a round could start at, target ids.
        logprobs: float32 [n, k]: the draft's log-probability of the text's token, teacher-forced, by step; NaN where
            the text has no such token or the draft's vocabulary lacks it.
        correct: int8 [n, k]: 1 where the draft's teacher-forced argmax is the text's token, 0 where not, -1 where the
            text has no such token.
        target: The target's agreement with a golden text; `None` where none was given.
        own: For engines that decode: the target's agreement with what they put out.
        deterministic: For engines that decode: whether the target, run twice without speculation, puts out the same;
            `None` where that was not asked, since nothing was put out that the target would not choose.
        chains: For engines that decode: the chain proposed in each round, that of the EOS round last.
        sketches: float32 [POSITIONS, stages, WIDTH]: of every stage at the sampled positions; see
            `harness.counts.stages`.
    """

    id: str
    category: str
    prompt_hash: str
    prompt_tokens: int
    continuation: tuple[int, ...]
    rounds: tuple[int, ...] | None
    histogram: tuple[int, ...]
    eos_round: EosRound | None = None
    proposals: NDArray[np.int64] | None = None
    logprobs: NDArray[np.float32] | None = None
    correct: NDArray[np.int8] | None = None
    target: TargetCheck | None = None
    own: TargetCheck | None = None
    deterministic: bool | None = None
    chains: tuple[tuple[int, ...], ...] | None = None
    sketches: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Run:
    """One run of an engine over a pair's prompts.

    Attributes:
        engine: The engine's name, with its mode (`reference:replay`).
        device: `cpu` or `cuda`.
        dtype: What target and draft computed in.
        num_steps: Chain length k.
        records: One record a prompt.
        versions: Library versions.
        seconds: Wall-clock time of the engine, loading included.
        aggregate: Rounds by accepted count over all prompts together, k+1 entries, where the engine knows no prompt's
            own; the records then count nothing.
        served: What a server says of itself: endpoint, version, model, settings of its speculation.
        notes: What is worth telling of how it was measured, and decides nothing.
    """

    engine: str
    device: str
    dtype: str
    num_steps: int
    records: tuple[PromptRecord, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    aggregate: tuple[int, ...] | None = None
    served: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def describe(self) -> dict[str, Any]:
        """Return what identifies the engine in a report."""
        return {"name": self.engine, "device": self.device, "dtype": self.dtype}


def histogram_of(rounds: list[int] | tuple[int, ...], num_steps: int) -> tuple[int, ...]:
    """Return rounds by accepted count, `num_steps + 1` entries."""
    counts = [0] * (num_steps + 1)
    for accepted in rounds:
        counts[accepted] += 1
    return tuple(counts)


def changed_windows(changed: NDArray[np.bool_], k: int) -> tuple[int, int]:
    """Return how many windows of `k` neighbouring positions hold a change, and how many windows there are."""
    windows = [bool(changed[start : start + k].any()) for start in range(0, len(changed), k)]
    return sum(windows), len(windows)
