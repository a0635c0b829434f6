"""What every engine returns: one record a prompt, as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["EosRound", "PromptRecord", "Run", "TargetCheck", "changed_windows", "histogram_of"]


@dataclass(frozen=True)
class EosRound:
    """The round that output the end of the text. The text cuts it, not the draft, so it is kept apart.

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
        agrees: bool [n]: whether the argmax at each position of the text is the text's token.
        gaps: float32 [n]: the greatest logit less the logit of the text's token, 0 if they agree.
    """

    agrees: NDArray[np.bool_]
    gaps: NDArray[np.float32]

    def drifts(self, tolerance: float) -> NDArray[np.bool_]:
        """Return where another token is chosen by more than a near-tie, bool [n]; a gap that is NaN counts.

        Args:
            tolerance: The greatest gap of a near-tie, in logits.
        """
        # Written so that a NaN counts: it is not less than anything.
        drifts: NDArray[np.bool_] = ~self.agrees & ~(self.gaps <= tolerance)
        return drifts


@dataclass(frozen=True)
class PromptRecord:
    """One prompt's measurement.

    Attributes:
        id: The prompt's id.
        category: The prompt's category.
        prompt_hash: Hash of the prompt's token ids.
        prompt_tokens: Number of these ids.
        continuation: The continuation that rounds were counted on, tokens past the limit included.
        rounds: Accepted count of each verify round in order, without the round that ended in EOS; `None` if the engine
            does not know the order.
        histogram: Rounds by accepted count, k+1 entries.
        eos_round: The round that ended in EOS, if one did.
        proposals: int64 [n, k]: the chain proposed at each of the n positions at which a round could start, target ids.
        logprobs: float32 [n, k]: the draft's log-probability of the text's token, teacher-forced, by step; NaN past the
            end of the text and for tokens outside the draft's vocabulary. An engine that decodes knows it at its own
            rounds, for the steps whose inputs are the text's tokens, and has NaN elsewhere.
        correct: int8 [n, k]: 1 if the draft's teacher-forced argmax is the text's token, 0 if not, -1 past the end of
            the text.
        target: The target's agreement with the reference continuation; `None` without one.
        own: The target's agreement with what the engine itself output; `None` if it does not decode.
        deterministic: Whether the target, run twice without speculation, outputs the same; `None` if that was not
            asked, since every output token was the target's choice.
        chains: The chain proposed in each round, that of the EOS round last; `None` if the engine does not decode.
        sketches: float32 [POSITIONS, stages, WIDTH]: every stage at the sampled positions; see
            `harness.counts.stages`.
        sketched: bool [POSITIONS, stages]: which of the sketches were taken, by an engine that takes them at its own
            rounds; `None` if all of the run's stages were, at every position.
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
    sketched: NDArray[np.bool_] | None = None

    def starts(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the position at which each round started and the chain it proposed; nothing if they are not known."""
        if self.chains is None or self.rounds is None:
            return
        start = 0
        # The EOS round has a chain and is not in `rounds`.
        for chain, accepted in zip(self.chains, (*self.rounds, 0), strict=False):
            yield start, chain
            # A round moves on by its accepted tokens and the bonus token.
            start += accepted + 1


@dataclass(frozen=True)
class Run:
    """One run of an engine over a pair's prompts.

    Attributes:
        engine: The engine's name, with its mode (`reference:replay`).
        device: `cpu` or `cuda`.
        dtype: The dtype in which target and draft computed.
        num_steps: Chain length k.
        records: One record a prompt.
        versions: Library versions.
        seconds: Wall-clock time of the engine in seconds, loading included.
        aggregate: Rounds by accepted count over all prompts together, k+1 entries, if the engine does not know each
            prompt's own; the records then do not count anything.
        served: A server's description of itself: endpoint, version, model, settings of its speculation.
        notes: Remarks on how it was measured, which decide nothing.
        stages: The stages that the records' sketches hold, by name; `None` if they hold all of them.
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
    stages: tuple[str, ...] | None = None

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
    """Return how many windows of `k` neighbouring positions have a change, and how many windows there are."""
    # Fixed windows, and not runs of changes: how many there are must not depend on what has changed.
    windows = [bool(changed[start : start + k].any()) for start in range(0, len(changed), k)]
    return sum(windows), len(windows)
