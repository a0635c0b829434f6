"""What a gate can see: losses planted in recorded counts, judged by the gate's own rule, thousands of times.

A loss is planted as a slightly worse draft makes it: each accepted token is refused with a probability q, which ends
its round there, and the tokens lost are made up by further rounds, with losses of their own. q is chosen so that the
rate falls by the drop asked for. Prompts are drawn from the recorded ones with replacement: they stand for prompts of
their kind, more of them or fewer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from harness.counts.acceptance import PromptCounts
from harness.detectors.acceptance import judge_counts
from harness.detectors.base import QUESTIONS, State
from harness.errors import InputError

__all__ = ["Cell", "Plan", "PowerTable", "plant", "power_table", "refusal_for"]

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """The gate whose power is asked for.

    Attributes:
        recorded: The golden's counts.
        margin: A drop that does not matter.
        floor: The floor that holds.
        alpha: Chance of error of the whole verdict.
        simulations: Comparisons simulated for each cell.
        seed: Of the simulation.
    """

    recorded: Sequence[PromptCounts]
    margin: float
    floor: float
    alpha: float
    simulations: int = 1000
    seed: int = 0


@dataclass(frozen=True)
class Cell:
    """What the gate said of one drop, measured on so many prompts.

    Attributes:
        drop: The drop planted.
        prompts: Prompts in each comparison.
        simulations: Comparisons.
        found: How many were called a regression.
        undecided: How many were inconclusive.
    """

    drop: float
    prompts: int
    simulations: int
    found: int
    undecided: int

    @property
    def power(self) -> float:
        """The share called a regression."""
        return self.found / self.simulations

    @property
    def standard_error(self) -> float:
        """Of the power, by the number of simulations."""
        return math.sqrt(self.power * (1 - self.power) / self.simulations)


@dataclass(frozen=True)
class PowerTable:
    """How surely drops are found.

    Attributes:
        plan: The gate.
        power: The power that counts as sure.
        cells: Every drop with every number of prompts.
        smallest: The smallest drop found with that power on the golden's own number of prompts; `None` where even the
            greatest asked about is not.
        needed: By drop, the number of prompts that finds it with that power; `None` where none up to the limit does, or
            the drop lies within the margin.
    """

    plan: Plan
    power: float
    cells: tuple[Cell, ...]
    smallest: float | None
    needed: dict[float, int | None] = field(default_factory=dict)


def plant(histograms: Counts, refusal: float, generator: np.random.Generator) -> Counts:
    """Return rounds by accepted count after a loss.

    Args:
        histograms: int64 [..., k+1]: rounds by accepted count of each prompt.
        refusal: The chance q that a token that was accepted is now refused.
        generator: Of the losses.

    Returns:
        int64 [..., k+1]: more rounds, which put out as many tokens.
    """
    thinned = _thin(histograms, refusal, generator)
    tokens = np.arange(histograms.shape[-1]) + 1
    lost = (histograms * tokens).sum(-1) - (thinned * tokens).sum(-1)
    rounds = np.maximum(thinned.sum(-1), 1)
    # The tokens lost come in further rounds of the prompt's own kind, of its mean length.
    further = generator.binomial(
        np.maximum(lost, 0), np.minimum(1.0, rounds / np.maximum((thinned * tokens).sum(-1), 1))
    )
    shares = histograms / np.maximum(histograms.sum(-1, keepdims=True), 1)
    # Where a prompt has no round, nothing can be lost; numpy still wants shares that add up.
    shares[..., 0] += 1 - shares.sum(-1)
    extra = generator.multinomial(further, np.clip(shares, 0, 1))
    return thinned + _thin(extra, refusal, generator)


def _thin(histograms: Counts, refusal: float, generator: np.random.Generator) -> Counts:
    """Cut each round at its first refused token."""
    result = np.zeros_like(histograms)
    for accepted in range(histograms.shape[-1]):
        chances = [(1 - refusal) ** step * refusal for step in range(accepted)]
        chances.append(1 - sum(chances))
        result[..., : accepted + 1] += generator.multinomial(histograms[..., accepted], chances)
    return result


def refusal_for(histograms: Counts, drop: float) -> float:
    """Return the q by which the rate of all prompts together falls by `drop`.

    Args:
        histograms: int64 [prompts, k+1].
        drop: The drop of the rate.

    Raises:
        InputError: The rate is lower than the drop.
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
            "no such drop can be planted", key="--drop", found=drop, expected=f"0 to the recorded rate {rate(0.0):.4f}"
        )
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
    """Simulate every drop with every number of prompts, and look for the smallest of both that is sure.

    Args:
        plan: The gate.
        drops: Drops to plant.
        prompts: Numbers of prompts.
        power: The share of comparisons that must call a drop a regression.
        most_prompts: Where the search for enough prompts ends.
        advance: Called with the number of figures just finished, of `len(drops) * (len(prompts) + 1) + 1`.
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


# Steps in which the smallest drop is looked for.
_RESOLUTION = 0.001


def _needed(plan: Plan, drop: float, power: float, most_prompts: int) -> int | None:
    if drop < plan.margin:
        # With prompts enough the gate knows that such a drop lies within the margin, and passes it.
        return None
    return _first(lambda count: _cell(plan, drop, count).power >= power, 4, most_prompts)


def _first(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """Return about the least number of a range for which a rising property holds, to within 3 %."""
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
    """Yield what the gate says of each simulated comparison."""
    histograms = np.array([counts.histogram for counts in plan.recorded], np.int64)
    refusal = refusal_for(histograms, drop)
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
            alpha=plan.alpha / QUESTIONS,
        )
        yield State.NOT_MEASURED if judgement is None else judgement.state


def _as_counts(histograms: Counts) -> list[PromptCounts]:
    return [PromptCounts(str(index), tuple(row)) for index, row in enumerate(histograms.tolist())]
