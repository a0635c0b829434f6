"""How much rounding alone changes: the golden's continuations replayed with kernels and dtypes that round differently.

A golden must hold on another machine, whose kernels sum in another order, and in another dtype of the same pair. Each
arm is one real way to round differently: another attention kernel; every prompt alone instead of in batches; captured
states off by one or two units in the last place; the pair computed in bfloat16 if it was recorded in a wider dtype, in
float32 if it was recorded in half precision. No arm needs a second copy of the target: its weights are cast module by
module while it runs, and its attention is switched in place.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from harness.counts.run import PromptRecord, changed_windows
from harness.counts.ties import NEAR_TIE
from harness.engines.base import NoiseSample, Progress
from harness.engines.reference.loaded import LoadedPair
from harness.engines.reference.replay import DraftInput, StateFilter, replay
from harness.models.precision import DTYPES
from harness.models.streamed import computing_in, other_attention
from harness.pair.prompts import Prompt

__all__ = ["jittered", "measure_noise"]

_UNITS = 2
_SEEDS = (1, 2)
# Least noise allowed for, in nats: a kernel's systematic rounding can move every position the same way.
_LEAST_LIKELIHOOD = {"float64": 1e-9, "float32": 1e-5, "float16": 1e-3, "bfloat16": 1e-3}
_OTHER = {"float64": "bfloat16", "float32": "bfloat16", "float16": "float32", "bfloat16": "float32"}


def measure_noise(
    loaded: LoadedPair,
    prompts: Sequence[Prompt],
    continuations: Sequence[tuple[int, ...]],
    records: Sequence[PromptRecord],
    jitters: Sequence[Sequence[PromptRecord]],
    progress: Progress,
) -> dict[str, list[NoiseSample]]:
    """Return the arms of the pair's own dtype, and those of the other dtype that it was computed in.

    Args:
        loaded: The pair.
        prompts: The prompts that the golden is recorded on.
        continuations: Their continuations.
        records: What replay makes of them.
        jitters: What it makes of them in the wirings of `jittered`.
        progress: Receives how far it is.
    """
    dtype = loaded.pair.settings.engine.dtype
    other = _OTHER[dtype]
    progress.begin("measuring rounding noise", 3 * len(prompts))

    def rerun(pair: LoadedPair, max_rows: int | None = None) -> list[PromptRecord]:
        return replay(pair, prompts, continuations, max_rows=max_rows, advance=progress.advance)

    arms = [
        _compare(records, arm, dtype, f"states off by up to {_UNITS} units in the last place, seed {seed}")
        for seed, arm in zip(_SEEDS, jitters, strict=True)
    ]
    arms.append(_compare(records, rerun(loaded, 1), dtype, "every prompt alone"))
    with other_attention(loaded.target.model) as kernel:
        if kernel is not None:
            arms.append(_compare(records, rerun(loaded), dtype, f"{kernel} attention"))
        else:
            progress.advance(len(prompts))
    samples: dict[str, list[NoiseSample]] = {dtype: arms}
    with _computed_in(loaded, other) as elsewhere:
        if elsewhere is None:
            progress.advance(len(prompts))
            return samples
        coarser = dtype if dtype in ("float16", "bfloat16") else other
        found = _compare(records, rerun(elsewhere), coarser, f"computed in {other}, recorded in {dtype}")
    if coarser == dtype:
        arms.append(found)
    # Both are runs of one pair in two dtypes, whichever of them was recorded.
    samples[other] = [found]
    return samples


def jittered(boundaries: tuple[int, ...]) -> list[DraftInput]:
    """Return wirings whose states are disturbed as much as another machine's kernels would disturb them at least."""
    return [DraftInput(boundaries, _jitter(seed)) for seed in _SEEDS]


def _jitter(seed: int) -> StateFilter:
    generator = torch.Generator().manual_seed(seed)

    def disturb(states: Tensor) -> Tensor:
        noise = torch.rand(states.shape, generator=generator, dtype=torch.float32) * 2 - 1
        # A unit in the last place is between half of the dtype's epsilon and all of it, relative to the value.
        return states * (1 + noise.to(states) * (_UNITS * torch.finfo(states.dtype).eps))

    return disturb


@contextlib.contextmanager
def _computed_in(loaded: LoadedPair, dtype: str) -> Iterator[LoadedPair | None]:
    """Have a pair compute in another dtype; `None` if its target's weights cannot be cast one by one."""
    wanted = DTYPES[dtype]
    with computing_in(loaded.target.model, wanted) as possible:
        if not possible:
            yield None
            return
        target = copy.copy(loaded.target)
        target.dtype = wanted
        yield replace(loaded, target=target, draft=copy.deepcopy(loaded.draft).to(wanted))


def _compare(records: Sequence[PromptRecord], arm: Sequence[PromptRecord], dtype: str, how: str) -> NoiseSample:
    counts, differences, drifted, evaluated = [], [], 0, 0
    for before, after in zip(records, arm, strict=True):
        assert before.proposals is not None
        assert after.proposals is not None
        assert before.logprobs is not None
        assert after.logprobs is not None
        k = before.proposals.shape[1]
        counts.append(changed_windows((before.proposals != after.proposals).any(axis=1), k))
        difference = (after.logprobs.astype(np.float64) - before.logprobs).ravel()
        differences.append(difference[np.isfinite(difference)])
        if after.target is not None:
            evaluated += len(after.target.agrees)
            drifted += int(after.target.drifts(NEAR_TIE[dtype]).sum())
    joined = np.concatenate(differences)
    shift = abs(float(joined.mean())) if len(joined) else 0.0
    return NoiseSample(how, tuple(counts), max(3 * shift, _LEAST_LIKELIHOOD[dtype]), drifted, evaluated)
