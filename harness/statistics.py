"""Intervals and tests. Prompts are clusters: what varies is the prompt, never the round.

Every estimate is a ratio of sums over prompts, linearised: with numerators y_i and denominators x_i, R = sum(y)/sum(x),
the influence of prompt i is z_i = (y_i - R x_i) / mean(x), and the standard error of R is sd(z) / sqrt(n). (Cochran,
Sampling Techniques, 1977, section 6.) A difference of two ratios over the same prompts has the difference of their
influences, which is what pairing is. Bounds are one-sided, each at `alpha`, by Student's t on n-1 degrees of freedom.

A t bound fires too often where few prompts differ. A loss is therefore only claimed where a sign-flip permutation of
the prompts' differences claims it too: under no change, each prompt's difference is as likely to be positive as
negative. With m changed prompts its smallest p-value is 2^-m, so fewer than log2(1/alpha) changed prompts can never
claim a loss, whatever their size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.stats
from numpy.typing import NDArray

__all__ = ["Interval", "Ratio", "paired_drop", "paired_mean", "prompts_needed", "rate_interval", "ratio"]

_RESAMPLES = 65_535
_SEED = 20_240_517

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """An estimate with one-sided bounds, each at `alpha`.

    Attributes:
        estimate: The estimate.
        low: Lower bound.
        high: Upper bound.
        standard_error: Clustered by prompt; `None` with a single prompt.
        prompts: Prompts it rests on.
        changed: Prompts whose value differs, for paired estimates.
        alpha: The chance, for each bound, that the truth lies beyond it.
    """

    estimate: float
    low: float
    high: float
    standard_error: float | None
    prompts: int
    changed: int
    alpha: float

    def to_dict(self) -> dict[str, Any]:
        """Return estimate, bounds and standard error for `--json`."""
        return {
            "estimate": self.estimate,
            "low": self.low,
            "high": self.high,
            "standard_error": self.standard_error,
        }


@dataclass(frozen=True)
class Ratio:
    """A ratio of sums with its prompts' influences, [n], which average to zero."""

    estimate: float
    influences: Floats

    @property
    def standard_error(self) -> float | None:
        """Clustered standard error; `None` with a single prompt."""
        count = len(self.influences)
        return None if count < 2 else float(self.influences.std(ddof=1) / math.sqrt(count))


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio | None:
    """Return a ratio of sums over prompts, `None` where the denominators sum to zero."""
    y, x = np.asarray(numerators, np.float64), np.asarray(denominators, np.float64)
    total = x.sum()
    if total == 0:
        return None
    estimate = float(y.sum() / total)
    return Ratio(estimate, (y - estimate * x) * len(x) / total)


def rate_interval(numerators: Sequence[float], denominators: Sequence[float], alpha: float) -> Interval | None:
    """Return a share with bounds within 0 … 1; the widest with a single prompt, `None` where nothing was measured."""
    value = ratio(numerators, denominators)
    if value is None:
        return None
    count = len(value.influences)
    error = value.standard_error
    if error is None:
        return Interval(value.estimate, 0.0, 1.0, None, count, count, alpha)
    half = _half_width(error, count, alpha)
    low, high = max(0.0, value.estimate - half), min(1.0, value.estimate + half)
    return Interval(value.estimate, low, high, error, count, count, alpha)


def paired_drop(
    before: tuple[Sequence[float], Sequence[float]], after: tuple[Sequence[float], Sequence[float]], alpha: float
) -> Interval | None:
    """Return how far a ratio of sums has dropped over the same prompts.

    Args:
        before: Numerators and denominators by prompt, of the golden.
        after: The same, now.
        alpha: Chance of error of each bound.

    Returns:
        The drop, positive for a loss; `None` where either side measured nothing.
    """
    first, second = ratio(*before), ratio(*after)
    if first is None or second is None:
        return None
    rows = [np.asarray(values, np.float64) for values in (*before, *after)]
    changed = int(((rows[0] != rows[2]) | (rows[1] != rows[3])).sum())
    return _bounded(first.estimate - second.estimate, first.influences - second.influences, changed, alpha)


def paired_mean(differences: Sequence[float], weights: Sequence[float], alpha: float) -> Interval | None:
    """Return a weighted mean of per-prompt differences, with the bounds of `paired_drop`.

    Args:
        differences: Each prompt's difference, summed over its positions.
        weights: Each prompt's number of positions.
        alpha: Chance of error of each bound.
    """
    value = ratio(differences, weights)
    if value is None:
        return None
    changed = int((np.asarray(differences) != 0).sum())
    return _bounded(value.estimate, value.influences, changed, alpha)


def _bounded(estimate: float, influences: Floats, changed: int, alpha: float) -> Interval:
    count = len(influences)
    if changed == 0:
        return Interval(estimate, estimate, estimate, 0.0, count, 0, alpha)
    if count < 2:
        return Interval(estimate, -math.inf, math.inf, None, count, changed, alpha)
    error = float(influences.std(ddof=1) / math.sqrt(count))
    half = _half_width(error, count, alpha)
    low, high = estimate - half, estimate + half
    differences = influences + estimate
    if low > 0 and _sign_flip(differences) > alpha:
        low = 0.0
    if high < 0 and _sign_flip(-differences) > alpha:
        high = 0.0
    return Interval(estimate, low, high, error, count, changed, alpha)


def _half_width(standard_error: float, count: int, alpha: float) -> float:
    return float(scipy.stats.t.ppf(1 - alpha, count - 1)) * standard_error


def _sign_flip(differences: Floats) -> float:
    """Return the one-sided p-value that the differences' sum is no larger than chance signs make it."""
    changed = differences[np.abs(differences) > 1e-12]
    if len(changed) == 0:
        return 1.0
    result = scipy.stats.permutation_test(
        (changed,),
        lambda sample, axis: sample.sum(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=_RESAMPLES,
        batch=8192,
        alternative="greater",
        rng=np.random.default_rng(_SEED),
    )
    return float(result.pvalue)


def prompts_needed(interval: Interval, margin: float) -> int | None:
    """Return about how many prompts would decide an undecided drop, `None` where no number would.

    The bounds shrink with the square root of the prompts: they must come to lie within `margin` of zero, or above zero.
    """
    half = interval.high - interval.estimate
    distance = margin - interval.estimate if interval.estimate < margin else interval.estimate
    if distance <= 0 or not math.isfinite(half):
        return None
    return max(interval.prompts + 1, math.ceil(interval.prompts * (half / distance) ** 2))
