"""Proposals: the share of positions at which the draft proposes the chain it proposed when the golden was recorded."""

from __future__ import annotations

import numpy as np
import scipy.stats

from harness.baseline.schema import Noise
from harness.detectors.base import Context, Finding, State
from harness.statistics import paired_mean

__all__ = ["detect", "noise_share"]


def noise_share(noise: Noise, alpha: float) -> float:
    """Return the share of positions that rounding may change: the exact upper bound of what was measured.

    Clopper and Pearson, Biometrika 26 (1934): the bound at `alpha` of `changed` out of `positions`.
    """
    if noise.positions == 0:
        return 0.0
    if noise.changed >= noise.positions:
        return 1.0
    return float(scipy.stats.beta.ppf(1 - alpha, noise.changed + 1, noise.positions - noise.changed))


def detect(context: Context) -> Finding:
    """Compare proposals position by position, against the noise floor measured when the golden was recorded."""
    rows = [
        (record.proposals, tensors.proposals)
        for record, _, tensors in context.pairs()
        if record.proposals is not None and tensors.proposals is not None
    ]
    if not rows:
        return Finding(State.NOT_APPLICABLE, "this engine or golden has no proposals at every position")
    changed = [int((ours != theirs).any(axis=1).sum()) for ours, theirs in rows]
    positions = [len(ours) for ours, _ in rows]
    share = paired_mean(changed, positions, context.alpha)
    if share is None:
        return Finding(State.NOT_MEASURED, "no position was compared")
    noise = context.noise
    floor = None if noise is None else noise_share(noise, context.alpha)
    figures = {
        "changed": sum(changed),
        "positions": sum(positions),
        "share": share.estimate,
        "low": max(0.0, share.low),
        "changed_prompts": int(np.count_nonzero(changed)),
        "prompts": len(rows),
        "noise_floor": floor,
    }
    text = (
        f"{sum(changed)} of {sum(positions)} positions propose another chain ({share.estimate:.2%}), "
        f"in {figures['changed_prompts']} of {len(rows)} prompts"
    )
    if floor is None:
        return Finding(State.NOT_APPLICABLE, f"{text}; no noise floor is known for {context.run.dtype}", figures)
    if _beyond(share.low, share.estimate, floor, len(rows)):
        return Finding(State.CHANGED, f"{text}; rounding explains at most {floor:.2%}", figures)
    return Finding(State.PASS, text if sum(changed) else f"the same chain at all {sum(positions)} positions", figures)


def _beyond(low: float, estimate: float, floor: float, prompts: int) -> bool:
    """Whether a share lies beyond the noise floor; with a single prompt there is no spread to judge by."""
    return low > floor if prompts > 1 else estimate > floor
