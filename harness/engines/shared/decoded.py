"""One prompt as a decoding engine leaves it, made into a record; and a run's records made into a run."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from harness.counts.own_rounds import same_inputs
from harness.counts.rounds import RoundCounter, accepted_prefix
from harness.counts.run import PromptRecord, Run, histogram_of
from harness.counts.stages import sample_positions
from harness.pair.pair import Pair
from harness.pair.prompts import Prompt

__all__ = ["Decoded", "RoundView", "as_run", "to_record", "torch_versions"]


@dataclass(frozen=True)
class RoundView:
    """What one round shows of what the draft was given and computed.

    Attributes:
        logprobs: float32 [k]: the log-probability, at each step, of the token that the target chose there; NaN for one
            outside the draft's vocabulary.
        sketches: float32 [stages, WIDTH]: the stages at the round's start; see `harness.counts.stages`.
        sketched: bool [stages]: which of the stages the engine sketches.
    """

    logprobs: NDArray[np.float32]
    sketches: NDArray[np.float32]
    sketched: NDArray[np.bool_]


@dataclass
class Decoded:
    """One prompt, decoded.

    Attributes:
        continuation: Its tokens so far, past the limit if the last round went past it.
        counter: The rounds counted so far.
        chains: The chain proposed in each round, the EOS round included.
        views: What each of these rounds shows; empty for an engine that shows nothing.
    """

    continuation: list[int]
    counter: RoundCounter
    chains: list[tuple[int, ...]] = field(default_factory=list)
    views: list[RoundView] = field(default_factory=list)

    def going(self) -> bool:
        """Whether another round starts."""
        limits = self.counter.limits
        ended = self.counter.eos_round is not None or limits.ended(self.continuation)
        return not ended and len(self.continuation) < limits.max_new_tokens

    def verify(self, chain: Sequence[int], predicted: Sequence[int]) -> int:
        """Take one round's chain and the target's k+1 predictions; return the number of tokens accepted."""
        accepted = accepted_prefix(chain, predicted)
        self.chains.append(tuple(chain))
        self.continuation.extend(self.counter.add(len(chain), accepted, [*chain[:accepted], predicted[accepted]]))
        return accepted


def to_record(prompt: Prompt, decoded: Decoded) -> PromptRecord:
    """Return what a decoder knows about one prompt."""
    counter = decoded.counter
    record = PromptRecord(
        id=prompt.id,
        category=prompt.category,
        prompt_hash=prompt.hash,
        prompt_tokens=len(prompt.ids),
        continuation=tuple(decoded.continuation),
        rounds=tuple(counter.rounds),
        histogram=histogram_of(counter.rounds, counter.limits.num_steps),
        eos_round=counter.eos_round,
        chains=tuple(decoded.chains),
    )
    return _with_views(record, decoded) if decoded.views else record


def _with_views(record: PromptRecord, decoded: Decoded) -> PromptRecord:
    """Return a record with what its rounds show, where the text's tokens determine it."""
    text, limits = record.continuation, decoded.counter.limits
    starts = limits.starts(text)
    logprobs = np.full((starts, limits.num_steps), np.nan, np.float32)
    sampled = sample_positions(max(1, starts))
    first = decoded.views[0]
    sketches = np.full((len(sampled), *first.sketches.shape), np.nan, np.float32)
    sketched = np.zeros(sketches.shape[:2], np.bool_)
    for (start, chain), view in zip(record.starts(), decoded.views, strict=True):
        steps = np.arange(limits.num_steps)
        given = steps < same_inputs(chain, text, start)
        # The last token that a step scores is the one after the text's last that it reads.
        scored = given & (start + 1 + steps < len(text))
        logprobs[start, scored] = view.logprobs[scored]
        for row, position in enumerate(sampled):
            if position == start:
                sketches[row] = view.sketches
                sketched[row] = view.sketched
                sketched[row, -limits.num_steps :] &= given
    return replace(record, logprobs=logprobs, sketches=sketches, sketched=sketched)


def torch_versions() -> dict[str, str]:
    """Return the versions of the libraries that an engine on this machine computes with."""
    # Imported here: a server's run needs neither, and both take seconds.
    import tokenizers
    import torch
    import transformers

    return {
        name: module.__version__
        for name, module in {"torch": torch, "transformers": transformers, "tokenizers": tokenizers}.items()
    }


def as_run(
    pair: Pair,
    records: Sequence[PromptRecord],
    engine: str,
    seconds: float,
    versions: Mapping[str, str] | None = None,
) -> Run:
    """Return records as a run on this machine.

    Args:
        pair: Gives device, dtype and chain length.
        records: One record per prompt.
        engine: The engine's name, with its mode.
        seconds: Wall-clock time of the engine, loading included.
        versions: Library versions; torch's and transformers' if `None`.
    """
    return Run(
        engine=engine,
        device=pair.settings.engine.device,
        dtype=pair.settings.engine.dtype,
        num_steps=pair.settings.decode.num_steps,
        records=tuple(records),
        versions={"python": platform.python_version(), **(torch_versions() if versions is None else versions)},
        seconds=seconds,
    )
