"""Proposals: the share of positions at which the draft proposes the chain it proposed when the golden was recorded.

Rounding turns over a near-tie now and then, and one such token stands in up to k neighbouring chains. So positions are
taken in windows of k, a window has changed where any of its chains has, and the number of changed windows is compared
with what rounding alone changed when the golden was recorded. Both steps are exact binomial ones: they hold for a
handful of prompts as well as for many.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from harness.counts.run import PromptRecord, changed_windows
from harness.counts.statistics import Interval, rate_interval
from harness.detectors.base import Context, Finding, State
from harness.golden.schema import Noise
from harness.golden.tensors import GoldenTensors

__all__ = ["ProposalsFigures", "detect", "explained_by_rounding", "noise_share"]


@dataclass(frozen=True)
class ProposalsFigures:
    """The draft's proposals next to the golden's, position by position.

    Attributes:
        changed: Positions at which another chain is proposed.
        evaluated: Positions at which the proposed chain was compared.
        changed_share: `changed` of `evaluated`, 0 to 1, with bounds; prompts are the clusters.
        changed_prompts: Number of prompts with at least one changed position.
        prompts: Number of prompts measured.
        changed_windows: Windows of k neighbouring positions with at least one changed position.
        windows: Windows compared.
        noise_floor: The share of windows that rounding alone may change in the run's dtype, 0 to 1; `None` if it is not
            known.
    """

    changed: int
    evaluated: int
    changed_share: Interval
    changed_prompts: int
    prompts: int
    changed_windows: int
    windows: int
    noise_floor: float | None


def noise_share(noise: Noise, alpha: float) -> float:
    """Return the share of windows that rounding may change: the exact upper bound of what was measured.

    Clopper and Pearson, Biometrika 26 (1934): the bound at `alpha` of `changed` out of `windows`.
    """
    if noise.changed >= noise.windows:
        return 1.0
    return float(scipy.stats.beta.ppf(1 - alpha, noise.changed + 1, noise.windows - noise.changed))


def explained_by_rounding(changed: int, windows: int, share: float, alpha: float) -> bool:
    """Whether rounding that changes a window with probability `share` explains as many changes, at `alpha`."""
    return changed == 0 or float(scipy.stats.binom.sf(changed - 1, windows, share)) > alpha


def _changed(record: PromptRecord, tensors: GoldenTensors) -> NDArray[np.bool_] | None:
    """Return whether each known chain is another one; `None` where nothing is known.

    An engine that decodes knows the chains of its own rounds, which can be compared as far as its text is the golden's.
    """
    if tensors.proposals is None:
        return None
    if record.proposals is not None:
        changed: NDArray[np.bool_] = (record.proposals != tensors.proposals).any(axis=1)
        return changed
    if record.chains is None or record.rounds is None:
        return None
    golden = tensors.proposals
    starts = np.cumsum([0, *(accepted + 1 for accepted in record.rounds)])[: len(record.chains)]
    common = min(len(record.continuation), len(tensors.continuation))
    differs = np.asarray(record.continuation[:common]) != tensors.continuation[:common]
    same = int(differs.argmax()) if differs.any() else common
    return np.array(
        [
            bool((np.asarray(chain) != golden[start]).any())
            for chain, start in zip(record.chains, starts, strict=True)
            if start < min(same, len(golden))
        ],
        dtype=np.bool_,
    )


def detect(context: Context) -> Finding[ProposalsFigures]:
    """Compare proposals position by position, against the noise floor measured when the golden was recorded."""
    found = (_changed(record, tensors) for record, _, tensors in context.pairs())
    rows = [row for row in found if row is not None]
    if not rows:
        return Finding(State.NOT_APPLICABLE, "this engine or golden has no proposals at every position")
    share = rate_interval([float(row.sum()) for row in rows], [len(row) for row in rows], context.alpha)
    if share is None:
        return Finding(State.NOT_MEASURED, "no position was compared")
    positions, changed = sum(len(row) for row in rows), sum(int(row.sum()) for row in rows)
    windows = [changed_windows(row, context.run.num_steps) for row in rows]
    noise = context.noise
    floor = None if noise is None else noise_share(noise, context.alpha)
    changed_count, window_count = sum(part for part, _ in windows), sum(whole for _, whole in windows)
    changed_prompts = sum(bool(row.any()) for row in rows)
    figures = ProposalsFigures(
        changed=changed,
        evaluated=positions,
        changed_share=share,
        changed_prompts=changed_prompts,
        prompts=len(rows),
        changed_windows=changed_count,
        windows=window_count,
        noise_floor=floor,
    )
    if changed == 0:
        return Finding(State.PASS, f"the same chain at all {positions} positions", figures)
    text = (
        f"{changed} of {positions} positions propose another chain ({share.estimate:.2%}), "
        f"in {changed_prompts} of {len(rows)} prompts"
    )
    if floor is None:
        return Finding(State.NOT_APPLICABLE, f"{text}; no noise floor is known for {context.run.dtype}", figures)
    if explained_by_rounding(changed_count, window_count, floor, context.alpha):
        return Finding(State.PASS, f"{text}; rounding explains that", figures)
    explained = f"{changed_count} of {window_count} windows, where rounding changes {floor:.2%} at most"
    return Finding(State.CHANGED, f"{text}; {explained}", figures)
