"""Intervals and tests. Prompts are clusters: rounds of one prompt resemble each other, so only prompts are a sample.

Every estimate is a ratio of sums over prompts, linearised: with numerators y_i and denominators x_i, R = sum(y)/sum(x),
the influence of prompt i is z_i = (y_i - R x_i) / mean(x), and the standard error of R is sd(z) / sqrt(n). (Cochran,
Sampling Techniques, 1977, section 6.) Pairing means that a difference of two ratios over the same prompts has the
difference of their influences: how prompts differ from each other cancels, and how each has changed remains. Bounds are
one-sided, each at `alpha`, by Student's t on n-1 degrees of freedom.

A t bound claims a change too often if few prompts differ: most differences are then exactly zero, and their standard
deviation rests on the few that are not. A loss is therefore claimed only if a sign-flip permutation of the prompts'
differences claims it too. If nothing has changed, golden and run could change places in any prompt, and each prompt's
difference is as likely to be positive as negative. With m changed prompts the smallest p-value of that test is 2^-m, so
fewer than log2(1/alpha) changed prompts can never claim a loss, however large it is. An engine that differs from itself
is recorded several times: then any of a prompt's R + 1 measurements could have been the run's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import pydantic
import scipy.stats
from numpy.typing import NDArray

__all__ = [
    "Interval",
    "PairedInterval",
    "Ratio",
    "Unbounded",
    "mean_columns",
    "paired_drop",
    "paired_mean",
    "permuted",
    "prompts_needed",
    "prompts_to_clear",
    "rate_interval",
    "ratio",
    "subset_rate",
]

# Steps of the grid on which the distribution of a sum is built up. Of 96 prompts, rounding to it raises a p-value near
# 0.00025 by a twentieth, and a test takes one or two milliseconds; a simulation of the gate makes thousands of them.
_GRID = 1 << 15

# JSON has neither infinity nor NaN. If a figure can be either, its schema allows the null that is written for it.
Unbounded = Annotated[float, pydantic.WithJsonSchema({"type": ["number", "null"]})]

Floats = NDArray[np.float64]
# Numerators and denominators by prompt.
Columns = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True)
class Interval:
    """An estimate with one-sided bounds, each at `alpha`.

    Attributes:
        estimate: The point estimate, in the unit of what is estimated.
        low: Lower bound; minus infinity if a single prompt says nothing about how far prompts differ.
        high: Upper bound, likewise.
        standard_error: Clustered by prompt; `None` with a single prompt.
        prompts: Number of prompts measured.
        alpha: The chance, for each bound, that the truth lies beyond it.
    """

    estimate: Unbounded
    low: Unbounded
    high: Unbounded
    standard_error: Unbounded | None
    prompts: int
    alpha: float


@dataclass(frozen=True)
class PairedInterval(Interval):
    """A difference of two measurements of the same prompts, with one-sided bounds, each at `alpha`.

    Attributes:
        changed_prompts: Number of prompts whose value differs between the two.
    """

    changed_prompts: int


@dataclass(frozen=True)
class Ratio:
    """A ratio of sums with its prompts' influences, [n], which average to zero.

    Attributes:
        estimate: The ratio.
        influences: float64 [n]: by how much each prompt moves it, times n.
    """

    estimate: float
    influences: Floats

    @property
    def standard_error(self) -> float | None:
        """Clustered standard error; `None` with a single prompt."""
        count = len(self.influences)
        return None if count < 2 else float(self.influences.std(ddof=1) / math.sqrt(count))


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio | None:
    """Return a ratio of sums over prompts, `None` if the denominators sum to zero."""
    y, x = np.asarray(numerators, np.float64), np.asarray(denominators, np.float64)
    total = x.sum()
    if total == 0:
        return None
    estimate = float(y.sum() / total)
    return Ratio(estimate, (y - estimate * x) * len(x) / total)


def rate_interval(numerators: Sequence[float], denominators: Sequence[float], alpha: float) -> Interval | None:
    """Return a share with bounds within 0 … 1; the widest with a single prompt, `None` if nothing was measured."""
    value = ratio(numerators, denominators)
    if value is None:
        return None
    count = len(value.influences)
    error = value.standard_error
    if error is None:
        return Interval(value.estimate, 0.0, 1.0, None, count, alpha)
    half = _half_width(error, count, alpha)
    low, high = max(0.0, value.estimate - half), min(1.0, value.estimate + half)
    return Interval(value.estimate, low, high, error, count, alpha)


def paired_drop(
    before: Columns, after: Columns, alpha: float, again: Sequence[Columns] = (), *, most: float = 1.0
) -> PairedInterval | None:
    """Return how far a ratio of sums has dropped over the same prompts.

    Args:
        before: The golden's numerators and denominators by prompt.
        after: The same prompts' in the run.
        alpha: Chance of error of each bound.
        again: Further golden runs of the same prompts. The golden's value is then the mean of its R runs, and the
            permutation test chooses which of the R + 1 measurements of each prompt is the run's.
        most: The greatest value that the ratio can have.

    Returns:
        The drop, positive for a loss, with bounds that the run could reach: it cannot lose more than the golden had,
        nor gain past `most`. `None` if one of the sides measured nothing.
    """
    golden = mean_columns((before, *again))
    first, second = ratio(*golden), ratio(*after)
    if first is None or second is None:
        return None
    runs = np.asarray((before, *again, after), np.float64)
    y, x = runs[:, 0], runs[:, 1]
    # Each measurement of a prompt is taken around the ratio of all together. Exchanging two measurements of a prompt
    # leaves that ratio as it is: the permutation test is exact if nothing has changed. Around either side's own ratio
    # it would not be.
    values = y - (y.sum() / x.sum()) * x
    changed = ((y != y[-1]) | (x != x[-1])).any(axis=0)
    influences = first.influences - second.influences
    drop = _bounded(first.estimate - second.estimate, influences, values, changed, alpha)
    low, high = max(drop.low, first.estimate - most), min(drop.high, first.estimate)
    return replace(drop, low=low, high=high)


def mean_columns(runs: Sequence[Columns]) -> Columns:
    """Return the mean of several runs' numerators and denominators, prompt by prompt."""
    if len(runs) == 1:
        return runs[0]
    y, x = np.asarray(runs, np.float64).mean(axis=0)
    return y.tolist(), x.tolist()


def subset_rate(whole: Columns, before: Columns, after: Columns, alpha: float) -> Interval | None:
    """Return a share over all recorded prompts, from a run over some of them.

    The floor was set for all recorded prompts, and a few of them may be harder than the rest: their own share says
    little about the floor. So their drop is taken from the recorded share of all prompts, which is the difference
    estimator of double sampling (Cochran, Sampling Techniques, 1977, section 12). If all prompts were run the estimate
    is the run's own share, with its own error. Degrees of freedom are Welch and Satterthwaite's, at most those of all
    prompts.

    Args:
        whole: Numerators and denominators of every recorded prompt.
        before: The recorded ones of the prompts that were run.
        after: The same prompts' in the run.
        alpha: Chance of error of each bound.

    Returns:
        The share with bounds within 0 … 1, the widest with a single prompt; `None` if nothing was measured.
    """
    recorded, first, second = ratio(*whole), ratio(*before), ratio(*after)
    if recorded is None or first is None or second is None:
        return None
    everything, count = len(recorded.influences), len(first.influences)
    estimate = min(1.0, max(0.0, recorded.estimate - (first.estimate - second.estimate)))
    if count < 2:
        return Interval(estimate, 0.0, 1.0, None, count, alpha)
    drop = first.influences - second.influences
    parts = [float(recorded.influences.var(ddof=1)) / everything, float(drop.var(ddof=1)) / count]
    together = sum(parts) - 2 * float(np.cov(first.influences, drop)[0, 1]) / everything
    # These variances come from samples of different sizes, so their sum can turn out too small or negative by chance.
    # It is never less than what the prompts that were not run leave open.
    error = math.sqrt(max(together, parts[1] * (1 - count / everything)))
    spread = parts[0] ** 2 / (everything - 1) + parts[1] ** 2 / (count - 1)
    degrees = everything - 1 if spread == 0 else min(everything - 1, int(sum(parts) ** 2 / spread))
    half = _half_width(error, degrees + 1, alpha)
    low, high = max(0.0, estimate - half), min(1.0, estimate + half)
    return Interval(estimate, low, high, error, count, alpha)


def paired_mean(differences: Sequence[float], weights: Sequence[float], alpha: float) -> PairedInterval | None:
    """Return a weighted mean of per-prompt differences, with the bounds of `paired_drop`.

    Args:
        differences: Each prompt's difference, summed over its positions.
        weights: Each prompt's number of positions.
        alpha: Chance of error of each bound.

    Returns:
        The mean; `None` without a position.
    """
    value = ratio(differences, weights)
    if value is None:
        return None
    values = np.asarray(differences, np.float64)
    return _bounded(value.estimate, value.influences, np.stack((values, np.zeros_like(values))), values != 0, alpha)


def _bounded(
    estimate: float, influences: Floats, values: Floats, which: NDArray[np.bool_], alpha: float
) -> PairedInterval:
    """Return a paired estimate with its bounds.

    Args:
        estimate: The point estimate, as it is.
        influences: float64 [n], for the t bounds.
        values: float64 [R + 1, n], for the permutation test: a prompt's measurements, the run's last, are exchangeable
            if nothing has changed.
        which: bool [n]: whether a prompt has changed at all.
        alpha: Chance of error of each bound.
    """
    count, changed = len(influences), int(which.sum())
    if changed == 0:
        # The same measurement twice: there is nothing that chance could have done.
        return PairedInterval(estimate, estimate, estimate, 0.0, count, alpha, 0)
    if count < 2:
        return PairedInterval(estimate, -math.inf, math.inf, None, count, alpha, changed)
    error = float(influences.std(ddof=1) / math.sqrt(count))
    half = _half_width(error, count, alpha)
    low, high = estimate - half, estimate + half
    # The bound moves to zero and no further: the interval then claims no change, and its width still says how precise
    # the estimate is.
    if low > 0 and permuted(values) > alpha:
        low = 0.0
    if high < 0 and permuted(-values) > alpha:
        high = 0.0
    return PairedInterval(estimate, low, high, error, count, alpha, changed)


def _half_width(standard_error: float, count: int, alpha: float) -> float:
    return _t_quantile(alpha, count - 1) * standard_error


@functools.lru_cache(maxsize=1024)
def _t_quantile(alpha: float, degrees: int) -> float:
    # scipy takes some 50 µs for it, and a simulation of the gate asks for the same few thousands of times. By the upper
    # tail: 1 - alpha would round a small alpha away.
    return float(scipy.stats.t.isf(alpha, degrees))


def permuted(values: Floats) -> float:
    """Return the one-sided p-value of a loss among all choices of which measurement of each cluster is the last.

    With two measurements a cluster this is the sign-flip test of their differences.

    Exact except for a grid: values are rounded to 1/32768 of the sum of their ranges, and the distribution of the sum
    over all choices is built up one cluster at a time (Pagano and Tritchler, Journal of the American Statistical
    Association 78, 1983). Sums that rounding could have moved past the observed one count as reaching it, so the
    p-value is never too small. scipy's permutation test instead draws random choices if there are more than 16
    clusters: it takes hundreds of times as long and leaves a p-value of 0.00025 uncertain by a quarter.

    Args:
        values: [R + 1, n]: each cluster's measurements, the one that may have lost last. A cluster whose measurements
            are equal does not count.
    """
    above = values - values.min(axis=0)
    ranges = above.max(axis=0)
    total = float(ranges.sum())
    if total == 0:
        return 1.0
    scaled = above / total * _GRID
    units = np.rint(scaled).astype(np.int64)
    moved = math.ceil(float(np.abs(scaled - units).max(axis=0).sum()))
    # chance[s]: the share of choices under which the last measurements sum to s units above the least possible. The
    # smaller that sum, the larger the loss, so the p-value is the chance of at most the observed one.
    chance = np.zeros(int(units.max(axis=0).sum()) + 1)
    chance[0], top = 1.0, 0
    # In ascending order, so that the part of the table that can be non-zero stays short for as long as possible.
    order = np.argsort(units.max(axis=0), kind="stable")
    for column in units[:, order].T.tolist():
        highest = max(column)
        if highest == 0:
            continue
        part = chance[: top + 1] / len(column)
        chance[: top + 1] = 0
        for unit in column:
            chance[unit : top + unit + 1] += part
        top += highest
    reached = int(units[-1].sum()) + moved
    return float(min(1.0, chance[: reached + 1].sum()))


def prompts_needed(interval: Interval, margin: float) -> int | None:
    """Return about how many prompts would decide an undecided drop, `None` if no number would.

    The bounds shrink with the square root of the number of prompts. A drop below the margin is decided once its upper
    bound is below the margin too, one above it once its lower bound is above zero.
    """
    distance = margin - interval.estimate if interval.estimate < margin else interval.estimate
    return _prompts_for(interval, distance)


def prompts_to_clear(interval: Interval, value: float) -> int | None:
    """Return about how many prompts would bring a value that is between the bounds outside of them; `None` as above."""
    return _prompts_for(interval, abs(interval.estimate - value))


def _prompts_for(interval: Interval, distance: float) -> int | None:
    """Return about how many prompts shrink the bounds to a distance from the estimate."""
    error = interval.standard_error
    if distance <= 0 or error is None:
        return None
    # Bounds that end at what is possible do not show how far chance reaches.
    half = max(
        interval.high - interval.estimate,
        interval.estimate - interval.low,
        _half_width(error, interval.prompts, interval.alpha),
    )
    if not math.isfinite(half):
        return None
    return max(interval.prompts + 1, math.ceil(interval.prompts * (half / distance) ** 2))
