"""Proposals: the share of positions at which the draft proposes the chain it proposed when the golden was recorded.

Proposals are the sharpest sign of a wrong wire: a draft that reads other states proposes other tokens long before fewer
of them are accepted. But rounding, too, turns over a near-tie now and then, and a token that changes is part of up to k
neighbouring chains: changed positions come in bursts and are not independent.

So positions are taken in windows of k, and a window has changed if any of its chains has. A burst then counts once or
twice, and the number of changed windows is nearly binomial. It is compared with what rounding alone changed when the
golden was recorded, in two steps: the exact upper bound of that share, then the exact chance of as many changes at that
share. Exact, because a handful of prompts must be judged as well as many, and because the usual count of changes is
zero, at which a normal approximation has zero width.
"""

from __future__ import annotations

from dataclasses import dataclass

import scipy.stats

from harness.counts.chains import changed_chains
from harness.counts.run import changed_windows
from harness.counts.statistics import Interval, rate_interval
from harness.detectors.base import Context, Finding, Question, State
from harness.golden.schema import Noise

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

    Clopper and Pearson, Biometrika 26 (1934): the bound at `alpha` of `changed` out of `windows`. It is above zero even
    if nothing changed, the more so the fewer windows were measured.
    """
    if noise.changed >= noise.windows:
        return 1.0
    return float(scipy.stats.beta.isf(alpha, noise.changed + 1, noise.windows - noise.changed))


def explained_by_rounding(changed: int, windows: int, share: float, alpha: float) -> bool:
    """Whether rounding that changes a window with probability `share` explains as many changes, at `alpha`."""
    return changed == 0 or float(scipy.stats.binom.sf(changed - 1, windows, share)) > alpha


def detect(context: Context) -> Finding[ProposalsFigures]:
    """Compare proposals position by position, against the noise floor measured when the golden was recorded."""
    found = (
        changed_chains(record, tensors.continuation, tensors.proposals)
        for record, _, tensors in context.pairs()
        if tensors.proposals is not None
    )
    rows = [row for row in found if row is not None]
    if not rows:
        return Finding(State.NOT_APPLICABLE, "this engine or golden does not know proposals at every position")
    share = rate_interval(
        [float(row.sum()) for row in rows], [len(row) for row in rows], context.share(Question.PROPOSALS)
    )
    if share is None:
        return Finding(State.NOT_MEASURED, "no position was compared")
    positions, changed = sum(len(row) for row in rows), sum(int(row.sum()) for row in rows)
    # Prompt by prompt: a window never spans two texts.
    windows = [changed_windows(row, context.run.num_steps) for row in rows]
    noise = context.noise
    floor = None if noise is None else noise_share(noise, context.share(Question.NOISE))
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
        return Finding(State.NOT_APPLICABLE, f"{text}; the noise floor of {context.run.dtype} is not known", figures)
    if explained_by_rounding(changed_count, window_count, floor, context.share(Question.PROPOSALS)):
        return Finding(State.PASS, f"{text}; rounding explains that", figures)
    explained = f"{changed_count} of {window_count} windows, of which rounding changes at most {floor:.2%}"
    return Finding(State.CHANGED, f"{text}; {explained}", figures)
