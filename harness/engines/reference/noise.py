"""How much rounding alone changes: the pair's golden continuations replayed with disturbances of the size of rounding.

A golden must hold on another machine, whose kernels sum in another order. The noise floor is measured with copies that
stand for such machines: every prompt alone instead of in batches, and captured states jittered by some units in the
last place. For bfloat16, the whole pair is computed in it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from harness.counts.run import PromptRecord, changed_windows
from harness.engines.base import NoiseSample, Progress
from harness.engines.reference.loaded import LoadedPair
from harness.engines.reference.replay import DraftInput, StateFilter, replay
from harness.models.target import Target
from harness.pair.prompts import Prompt

__all__ = ["jittered", "measure_noise"]

# Kernels of one dtype differ by a few units in the last place in each of the target's layers; 64 of them on the
# captured state is generous, and far below what any wrong wire does.
_UNITS = 64
_SEEDS = (1, 2, 3)
# Least noise allowed for, in nats: a kernel's systematic rounding can move every position the same way.
_LEAST_LIKELIHOOD = {"float64": 1e-9, "float32": 1e-5, "float16": 1e-3, "bfloat16": 1e-3}
_LARGEST_COPY = 1_000_000_000


def measure_noise(
    loaded: LoadedPair,
    prompts: Sequence[Prompt],
    continuations: Sequence[tuple[int, ...]],
    records: Sequence[PromptRecord],
    jitters: Sequence[Sequence[PromptRecord]],
    progress: Progress,
) -> dict[str, NoiseSample]:
    """Return the noise of the pair's own dtype, and of bfloat16 if a copy of the target fits in memory.

    Args:
        loaded: The pair.
        prompts: The prompts that the golden is recorded on.
        continuations: Their continuations.
        records: What replay makes of them.
        jitters: What it makes of them in the wirings of `jittered`.
        progress: Receives how far it is.
    """
    dtype = loaded.pair.settings.engine.dtype
    bfloat16 = dtype in ("float32", "float64") and _size(loaded.target) <= _LARGEST_COPY
    progress.begin("measuring rounding noise", len(prompts) * (1 + bfloat16))
    arms = [_rerun(loaded, prompts, continuations, progress, max_rows=1), *jitters]
    how = f"prompts one by one; states jittered by {_UNITS} units in the last place, {len(_SEEDS)} times"
    samples: dict[str, NoiseSample] = {dtype: _compare(records, arms, dtype, how)}
    if bfloat16:
        arm = _rerun(_in_bfloat16(loaded), prompts, continuations, progress)
        samples["bfloat16"] = _compare(records, [arm], "bfloat16", "target and draft computed in bfloat16")
    return samples


def _size(target: Target) -> int:
    return sum(parameter.numel() for parameter in target.model.parameters())


def _rerun(
    loaded: LoadedPair,
    prompts: Sequence[Prompt],
    continuations: Sequence[tuple[int, ...]],
    progress: Progress,
    *,
    max_rows: int | None = None,
) -> list[PromptRecord]:
    return replay(loaded, prompts, continuations, max_rows=max_rows, advance=progress.advance)


def jittered(boundaries: tuple[int, ...]) -> list[DraftInput]:
    """Return wirings whose states are disturbed as much as another machine's kernels would disturb them."""
    return [DraftInput(boundaries, _jitter(seed)) for seed in _SEEDS]


def _jitter(seed: int) -> StateFilter:
    generator = torch.Generator().manual_seed(seed)

    def disturb(states: Tensor) -> Tensor:
        noise = torch.randn(states.shape, generator=generator, dtype=torch.float32).to(states)
        return states * (1 + noise * (_UNITS * torch.finfo(states.dtype).eps))

    return disturb


def _in_bfloat16(loaded: LoadedPair) -> LoadedPair:
    model = copy.deepcopy(loaded.target.model).to(torch.bfloat16)
    target = Target(model, loaded.target.spec)
    return replace(loaded, target=target, draft=copy.deepcopy(loaded.draft).to(torch.bfloat16))


def _compare(
    records: Sequence[PromptRecord], arms: Sequence[Sequence[PromptRecord]], dtype: str, how: str
) -> NoiseSample:
    windows = changed = 0
    shifts = []
    for arm in arms:
        differences = []
        for before, after in zip(records, arm, strict=True):
            assert before.proposals is not None
            assert after.proposals is not None
            assert before.logprobs is not None
            assert after.logprobs is not None
            part, whole = changed_windows((before.proposals != after.proposals).any(axis=1), before.proposals.shape[1])
            changed, windows = changed + part, windows + whole
            difference = (after.logprobs.astype(np.float64) - before.logprobs).ravel()
            differences.append(difference[np.isfinite(difference)])
        joined = np.concatenate(differences)
        shifts.append(abs(float(joined.mean())) if len(joined) else 0.0)
    return NoiseSample(windows, changed, max(3 * max(shifts), _LEAST_LIKELIHOOD[dtype]), how)
