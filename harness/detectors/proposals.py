"""Proposals: the share of positions at which the draft proposes the chain it proposed when the golden was recorded.

Proposals are the sharpest sign of a wrong wire: a draft that reads other states proposes other tokens long before fewer
of them are accepted. But rounding, too, turns over a near-tie now and then, and a token that changes is part of up to k
neighbouring chains: changed positions come in bursts and are not independent.

So positions are taken in windows of k, and a window has changed if any of its chains has. A burst then counts once or
twice. Windows of one prompt still resemble each other, so what is compared is their *effective* number: windows divided
by the design effect, the ratio of the variance between prompts to that of independent windows (Kish, Survey Sampling,
1965). The number of changed windows is compared with what rounding alone changed when the golden was recorded, in two
steps: the exact upper bound of that share, then the exact chance of as many changes at that share. Exact, because a
handful of prompts must be judged as well as many, and because the usual count of changes is zero, at which a normal
approximation has zero width.

Rounding differs in several ways, the golden's arms, and a run may differ as the worst of them does. The greatest bound
of any arm counts: a pool of all would be exceeded by every run that rounds as the worst arm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import scipy.stats

from harness.counts.chains import changed_chains
from harness.counts.run import changed_windows
from harness.counts.statistics import Interval, rate_interval, ratio
from harness.detectors.base import Context, Finding, Question, State
from harness.golden.schema import Noise, NoiseArm

__all__ = ["NoiseShare", "ProposalsFigures", "design_effect", "detect", "explained_by_rounding", "noise_share"]


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
        design_effect: How many of these windows are worth one independent window, since those of a prompt resemble each
            other; `None` if the noise is not known.
        noise_arm: The way of rounding differently that the noise floor comes from, in words; `None` likewise.
    """

    changed: int
    evaluated: int
    changed_share: Interval
    changed_prompts: int
    prompts: int
    changed_windows: int
    windows: int
    noise_floor: float | None
    design_effect: float | None
    noise_arm: str | None


@dataclass(frozen=True)
class NoiseShare:
    """The share of windows that rounding may change.

    Attributes:
        bound: The greatest upper bound of any arm, 0 to 1.
        effect: The design effect of that arm's windows, 1 or more: how many windows are worth one independent one.
        how: That arm, in words.
    """

    bound: float
    effect: float
    how: str


def noise_share(noise: Noise, alpha: float) -> NoiseShare:
    """Return the share of windows that rounding may change: the greatest upper bound of what an arm measured.

    Clopper and Pearson, Biometrika 26 (1934), on effective numbers: the bound at `alpha` of `changed` out of `windows`.
    It is above zero even if nothing changed, the more so the fewer windows were measured.
    """
    shares = [_arm_share(arm, alpha) for arm in noise.arms]
    return max(shares, key=lambda share: share.bound)


def _arm_share(arm: NoiseArm, alpha: float) -> NoiseShare:
    effect = design_effect(arm.by_prompt) if arm.by_prompt is not None else 1.0
    if arm.changed >= arm.windows:
        return NoiseShare(1.0, effect, arm.how)
    changed, windows = arm.changed / effect, arm.windows / effect
    bound = float(scipy.stats.beta.isf(alpha, changed + 1, windows - changed))
    return NoiseShare(bound, effect, arm.how)


def design_effect(counts: Sequence[Sequence[int]]) -> float:
    """Return the variance of a share between clusters over that of independent windows; at least 1.

    Args:
        counts: Changed windows and windows, for each prompt.
    """
    value = ratio([part for part, _ in counts], [whole for _, whole in counts])
    error = None if value is None else value.standard_error
    if value is None or error is None or not 0 < value.estimate < 1:
        return 1.0
    windows = sum(whole for _, whole in counts)
    return max(1.0, error**2 / (value.estimate * (1 - value.estimate) / windows))


def explained_by_rounding(changed: int, windows: int, share: NoiseShare, alpha: float) -> bool:
    """Whether rounding that changes as many windows as `share` says explains as many changes, at `alpha`.

    The chance of at least x of n at a share p is the regularised incomplete beta function I_p(x, n - x + 1), which is
    defined between whole numbers too, so that effective numbers need no rounding.
    """
    if changed == 0 or share.bound >= 1:
        return True
    x, n = changed / share.effect, windows / share.effect
    return float(scipy.stats.beta.cdf(share.bound, x, n - x + 1)) > alpha


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
    alpha = context.share(Question.PROPOSALS)
    share = rate_interval([float(row.sum()) for row in rows], [len(row) for row in rows], alpha)
    if share is None:
        return Finding(State.NOT_MEASURED, "no position was compared")
    positions, changed = sum(len(row) for row in rows), sum(int(row.sum()) for row in rows)
    # Prompt by prompt: a window never spans two texts.
    windows = [changed_windows(row, context.run.num_steps) for row in rows]
    noise = context.noise
    floor = None
    if noise is not None:
        measured = noise_share(noise, context.share(Question.PROPOSALS_NOISE))
        floor = replace(measured, bound=min(1.0, measured.bound * context.noise_factor))
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
        noise_floor=None if floor is None else floor.bound,
        design_effect=None if floor is None else floor.effect,
        noise_arm=None if floor is None else floor.how,
    )
    if changed == 0:
        return Finding(State.PASS, f"the same chain at all {positions} positions", figures)
    text = (
        f"{changed} of {positions} positions propose another chain ({share.estimate:.2%}), "
        f"in {changed_prompts} of {len(rows)} prompts"
    )
    if floor is None:
        return Finding(State.NOT_APPLICABLE, f"{text}; the noise floor of {context.run.dtype} is not known", figures)
    if explained_by_rounding(changed_count, window_count, floor, alpha):
        return Finding(State.PASS, f"{text}; rounding explains that", figures)
    explained = f"{changed_count} of {window_count} windows, of which rounding changes at most {floor.bound:.2%}"
    if context.noise_factor > 1:
        explained += f" (measured on {context.golden.document.device} and widened by √2: an assumption)"
    return Finding(State.CHANGED, f"{text}; {explained}", figures)
