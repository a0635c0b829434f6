"""Simulating which drops a gate can find: losses are planted in recorded counts and judged by the gate's own rule.

A loss is planted as a slightly worse draft would cause it. Each accepted token is refused with probability q, which
ends its round there, and further rounds, with losses of their own, make up for the lost tokens. q is chosen so that the
rate falls by a given drop. Prompts are drawn with replacement from the recorded ones, so that the simulation can have
more of them, or fewer, than the golden.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from harness.counts.acceptance import PromptCounts
from harness.detectors.acceptance import judge_counts
from harness.detectors.base import State
from harness.errors import InputError

__all__ = ["Cell", "Plan", "PowerTable", "plant", "power_table", "refusal_for"]

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """The gate to be simulated.

    Attributes:
        recorded: The golden's counts, one entry per prompt.
        margin: The greatest drop of the rate that does not matter.
        floor: The lowest rate that the gate allows, as a share.
        alpha: Chance of error of the whole verdict.
        simulations: Comparisons simulated per cell.
        seed: Seed of the random numbers; the same seed gives the same table.
    """

    recorded: Sequence[PromptCounts]
    margin: float
    floor: float
    alpha: float
    simulations: int = 1000
    seed: int = 0


@dataclass(frozen=True)
class Cell:
    """The gate's verdicts on one drop with one number of prompts.

    Attributes:
        drop: The planted drop of the rate, as a share.
        prompts: Prompts in each comparison.
        simulations: Number of simulated comparisons.
        found: Comparisons that the gate called a regression.
        undecided: Comparisons that the gate called inconclusive.
    """

    drop: float
    prompts: int
    simulations: int
    found: int
    undecided: int

    @property
    def power(self) -> float:
        """The share of comparisons that were called a regression."""
        return self.found / self.simulations

    @property
    def standard_error(self) -> float:
        """Standard error of the power, which the number of simulations determines."""
        return math.sqrt(self.power * (1 - self.power) / self.simulations)


@dataclass(frozen=True)
class PowerTable:
    """The power of a gate by drop and number of prompts.

    Attributes:
        plan: The gate that was simulated.
        power: The power at which a drop counts as found.
        cells: One entry for every drop with every number of prompts.
        smallest: The smallest drop found with that power on the golden's own number of prompts; `None` if even the
            greatest of the drops is not found.
        needed: The number of prompts that finds each drop with that power, by drop; `None` if no number up to the limit
            does, or if the drop is within the margin.
    """

    plan: Plan
    power: float
    cells: tuple[Cell, ...]
    smallest: float | None
    needed: dict[float, int | None] = field(default_factory=dict)


def plant(histograms: Counts, refusal: float, generator: np.random.Generator) -> Counts:
    """Return rounds by accepted count after a planted loss.

    Args:
        histograms: int64 [..., k+1]; each prompt's rounds by accepted count.
        refusal: The probability q that a token that was accepted is now refused.
        generator: Source of the random numbers.

    Returns:
        int64 [..., k+1]; more rounds, which output as many tokens.
    """
    thinned = _thin(histograms, refusal, generator)
    tokens = np.arange(histograms.shape[-1]) + 1
    lost = (histograms * tokens).sum(-1) - (thinned * tokens).sum(-1)
    rounds = np.maximum(thinned.sum(-1), 1)
    # A worse draft does not shorten the output: the lost tokens come from further rounds like the prompt's others, and
    # as many of them as its mean length calls for.
    further = generator.binomial(
        np.maximum(lost, 0), np.minimum(1.0, rounds / np.maximum((thinned * tokens).sum(-1), 1))
    )
    shares = histograms / np.maximum(histograms.sum(-1, keepdims=True), 1)
    # A prompt without rounds cannot lose anything, but numpy requires its shares to add up to one all the same.
    shares[..., 0] += 1 - shares.sum(-1)
    extra = generator.multinomial(further, np.clip(shares, 0, 1))
    return thinned + _thin(extra, refusal, generator)


def _thin(histograms: Counts, refusal: float, generator: np.random.Generator) -> Counts:
    """Cut each round at its first refused token: verification accepts a prefix, so what follows is lost too."""
    result = np.zeros_like(histograms)
    for accepted in range(histograms.shape[-1]):
        chances = [(1 - refusal) ** step * refusal for step in range(accepted)]
        chances.append(1 - sum(chances))
        result[..., : accepted + 1] += generator.multinomial(histograms[..., accepted], chances)
    return result


def refusal_for(histograms: Counts, drop: float) -> float:
    """Return the q at which the rate of all prompts together falls by `drop`.

    Args:
        histograms: int64 [prompts, k+1]; each prompt's rounds by accepted count.
        drop: The drop of the rate, as a share.

    Raises:
        InputError: The recorded rate is lower than the drop.
    """
    k = histograms.shape[-1] - 1
    rounds = histograms.sum(-1)
    tokens = (histograms * (np.arange(k + 1) + 1)).sum(-1)
    measured = rounds > 0

    def rate(refusal: float) -> float:
        kept = np.array([sum((1 - refusal) ** step for step in range(1, count + 1)) for count in range(k + 1)])
        mean = (histograms * kept).sum(-1)[measured] / rounds[measured]
        expected = tokens[measured] / (1 + mean)
        return float((expected * mean).sum() / (k * expected.sum()))

    wanted = rate(0.0) - drop
    if drop < 0 or wanted < 0:
        raise InputError(
            "the drop is out of range", key="--drop", found=drop, expected=f"0 to the recorded rate {rate(0.0):.4f}"
        )
    # The rate falls steadily as q grows, so bisection finds it: 50 halvings reach a double's precision.
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if rate(middle) > wanted else (low, middle)
    return (low + high) / 2


def power_table(
    plan: Plan,
    drops: Sequence[float],
    prompts: Sequence[int],
    *,
    power: float,
    most_prompts: int = 4096,
    advance: Callable[[int], None] = lambda _: None,
) -> PowerTable:
    """Simulate every drop with every number of prompts, and search for the smallest of each that the gate finds.

    Args:
        plan: The gate to be simulated.
        drops: Drops of the rate to plant, as shares.
        prompts: Numbers of prompts to draw.
        power: The share of comparisons that must be called a regression for a drop to count as found.
        most_prompts: Upper limit of the search for enough prompts.
        advance: Is called with the number of figures just finished, of `len(drops) * (len(prompts) + 1) + 1`.
    """
    cells = []
    for count in prompts:
        for drop in drops:
            cells.append(_cell(plan, drop, count))
            advance(1)
    own, greatest = len(plan.recorded), max(drops, default=0.0)
    steps = _first(
        lambda step: _cell(plan, step * _RESOLUTION, own).power >= power, 1, max(1, round(greatest / _RESOLUTION))
    )
    advance(1)
    needed: dict[float, int | None] = {}
    for drop in drops:
        needed[drop] = _needed(plan, drop, power, most_prompts)
        advance(1)
    return PowerTable(plan, power, tuple(cells), None if steps is None else steps * _RESOLUTION, needed)


# Step of the search for the smallest drop, as a share: 0.1 points, a tenth of the default margin.
_RESOLUTION = 0.001


def _needed(plan: Plan, drop: float, power: float, most_prompts: int) -> int | None:
    if drop < plan.margin:
        # With enough prompts the gate becomes sure that such a drop is within the margin, and passes it.
        return None
    return _first(lambda count: _cell(plan, drop, count).power >= power, 4, most_prompts)


def _first(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """Return about the least number from which on a property holds, to within 3 %; `None` if not even `high` has it."""
    # Doubling first: small numbers are cheap to try, and most searches end long before the range does.
    upper = low
    while not holds(upper):
        if upper >= high:
            return None
        low, upper = upper + 1, min(high, upper * 2)
    while upper - low > max(0, upper // 32):
        middle = (low + upper) // 2
        low, upper = (low, middle) if holds(middle) else (middle + 1, upper)
    return upper


def _cell(plan: Plan, drop: float, prompts: int) -> Cell:
    states = list(_verdicts(plan, drop, prompts))
    found, undecided = states.count(State.REGRESSION), states.count(State.INCONCLUSIVE)
    return Cell(drop, prompts, len(states), found, undecided)


def _verdicts(plan: Plan, drop: float, prompts: int) -> Iterator[State]:
    """Yield the gate's verdict on each simulated comparison."""
    histograms = np.array([counts.histogram for counts in plan.recorded], np.int64)
    refusal = refusal_for(histograms, drop)
    # Every cell has random numbers of its own, so that its figure does not depend on which other cells are asked for.
    generator = np.random.default_rng((plan.seed, prompts, round(drop * 1e6)))
    for _ in range(plan.simulations):
        before = histograms[generator.integers(0, len(histograms), prompts)]
        golden, now = _as_counts(before), _as_counts(plant(before, refusal, generator))
        judgement = judge_counts(
            golden,
            golden,
            now,
            margin=plan.margin,
            floor=plan.floor,
            clear_of_floor=True,
            alpha=plan.alpha,
        )
        yield State.NOT_MEASURED if judgement is None else judgement.state


def _as_counts(histograms: Counts) -> list[PromptCounts]:
    return [PromptCounts(str(index), tuple(row)) for index, row in enumerate(histograms.tolist())]
