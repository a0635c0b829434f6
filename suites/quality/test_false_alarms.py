"""The gate's false-alarm rate, by simulation with the gate's own functions: 5,000 comparisons, 50,000 in a nightly run.

A/A means that golden and run are two measurements of one thing, so that in any prompt they could change places. What
differs between the cases is how many prompts differ, and how lopsided the noise of each measurement is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import hypothesis
import numpy as np
import pytest
import scipy.stats
import torch
from numpy.typing import NDArray

from harness.commands.prepare import prepare
from harness.counts.acceptance import PromptCounts, counts_of
from harness.counts.run import Run
from harness.detectors import Context, run_detectors
from harness.detectors.acceptance import judge_counts
from harness.detectors.base import State
from harness.detectors.gate import verdict
from harness.engines.reference.loaded import load
from harness.engines.reference.replay import replay
from harness.engines.shared.decoded import as_run
from harness.golden.find import find_golden
from harness.golden.golden_class import DEFAULT
from harness.golden.store import load_golden
from harness.pair.pair import load_prompts
from suites.support.builtin_pairs import replay_golden

pytestmark = pytest.mark.slow

COMPARISONS = 50 * hypothesis.settings().max_examples
ALPHA, MARGIN, FLOOR = 0.001, 0.01, 0.70
SIZES = (24, 48, 96)

Generator = np.random.Generator
Counts = NDArray[np.int64]
# From recorded rounds and which prompts they are of to both sides of a comparison.
Make = Callable[[Generator, Counts, Counts], tuple[Counts, Counts]]


def _most(comparisons: int) -> int:
    """Return the number of alarms that a true rate of `ALPHA` exceeds once in 10,000 tries."""
    return int(scipy.stats.binom.ppf(1 - 1e-4, comparisons, ALPHA))


def _noisy(share: float) -> Make:
    """Both sides lose tokens by a lopsided noise of their own, in a share of the prompts: most lose none."""

    def arm(generator: Generator, histograms: Counts) -> Counts:
        result = histograms.copy()
        for row in np.flatnonzero(generator.random(len(histograms)) < share):
            # From one round to most of them lose all that they had, seldom many.
            rounds = min(result[row].sum(), 1 + int(generator.exponential(2)))
            lost = generator.multivariate_hypergeometric(result[row], rounds)
            result[row] -= lost
            result[row, 0] += rounds
        return result

    return lambda generator, histograms, _: (arm(generator, histograms), arm(generator, histograms))


def _swapped(other: Counts) -> Make:
    """Golden and a run with a wrong wire, which differ greatly, changing places by chance in every prompt."""

    def make(generator: Generator, histograms: Counts, chosen: Counts) -> tuple[Counts, Counts]:
        swap = generator.random((len(histograms), 1)) < 0.5
        return np.where(swap, other[chosen], histograms), np.where(swap, histograms, other[chosen])

    return make


def _as_measured(other: Counts) -> Make:
    """Golden and another run of the same prompts, as both were measured."""
    return lambda _, histograms, chosen: (histograms, other[chosen])


def _as_counts(histograms: Counts) -> list[PromptCounts]:
    return [PromptCounts(str(index), tuple(row)) for index, row in enumerate(histograms.tolist())]


@pytest.fixture(scope="module")
def recorded() -> Counts:
    golden = load_golden(find_golden(prepare("tiny"), DEFAULT))
    return np.array([prompt.histogram for prompt in golden.document.prompts])


@pytest.fixture(scope="module")
def miswired() -> Counts:
    """The rounds of the pair with the other draft's boundaries."""
    return np.array([record.histogram for record in replay_golden("tiny", (0, 2, 4)).records])


@pytest.fixture(scope="module")
def rounded() -> Counts:
    """The rounds of the pair computed in bfloat16."""
    return np.array([record.histogram for record in replay_golden("tiny", dtype="bfloat16").records])


def test_the_gate_fires_no_oftener_than_it_says(recorded: Counts, miswired: Counts, rounded: Counts) -> None:
    makes = {
        "rounding of bfloat16": _as_measured(rounded),
        "one prompt in twenty differs": _noisy(0.05),
        "one in four differs": _noisy(0.25),
        "all differ": _noisy(1.0),
        "all differ greatly": _swapped(miswired),
    }
    generator = np.random.default_rng(20_240_601)
    alarms = dict.fromkeys(makes, 0)
    each = COMPARISONS // (len(makes) * len(SIZES))
    for name, make in makes.items():
        for size in SIZES:
            for _ in range(each):
                chosen = generator.choice(len(recorded), size, replace=False)
                golden, now = (_as_counts(side) for side in make(generator, recorded[chosen], chosen))
                judgement = judge_counts(
                    golden, golden, now, margin=MARGIN, floor=0.0, clear_of_floor=True, alpha=ALPHA
                )
                assert judgement is not None
                alarms[name] += judgement.state is State.REGRESSION
    print(f"\n{sum(alarms.values())} alarms in {each * len(makes) * len(SIZES)} comparisons: {alarms}")  # noqa: T201
    assert sum(alarms.values()) <= _most(each * len(makes) * len(SIZES))
    for name, count in alarms.items():
        assert count <= _most(each * len(SIZES)), name


def test_a_rule_that_fires_too_often_would_be_found(recorded: Counts) -> None:
    """The same simulation of a gate at thirty times alpha, margin ignored: what the bound above is there to refuse."""
    generator = np.random.default_rng(7)
    make, alarms, comparisons = _noisy(1.0), 0, COMPARISONS // 4
    for _ in range(comparisons):
        golden, now = (_as_counts(side) for side in make(generator, recorded, np.arange(len(recorded))))
        judgement = judge_counts(golden, golden, now, margin=MARGIN, floor=0.0, clear_of_floor=True, alpha=180 * ALPHA)
        assert judgement is not None
        alarms += judgement.drop.low > 0
    assert alarms > _most(comparisons)


class _Arms:
    """Runs of a pair whose weights and features are rounded to bfloat16, each time another way."""

    def __init__(self, name: str) -> None:
        self.pair = prepare(name, dtype="bfloat16")
        self.golden = load_golden(find_golden(self.pair, DEFAULT))
        self.runs = [replay_golden(name, None, dtype="bfloat16"), *self._dithered(name, 2)]

    def _dithered(self, name: str, count: int) -> Iterator[Run]:
        loaded = load(prepare(name))
        for seed in range(count):
            generator = torch.Generator().manual_seed(seed)

            def rounded(values: torch.Tensor, generator: torch.Generator = generator) -> torch.Tensor:
                # One unit in the last place of bfloat16 is 2^-8 of the value; rounding is off by half of it at most.
                noise = torch.rand(values.shape, generator=generator) - 0.5
                return (values * (1 + noise / 128)).bfloat16().float()

            with torch.no_grad():
                draft = load(prepare(name)).draft
                for parameter in draft.parameters():
                    parameter.copy_(rounded(parameter))
            disturbed = replace(loaded, draft=draft)
            prompts = load_prompts(loaded.pair)
            texts = [self.golden.continuation(prompt.id) for prompt in prompts]
            records = replay(disturbed, prompts, texts, state_filter=rounded)
            yield replace(as_run(loaded.pair, records, "reference:replay", 0.0), dtype="bfloat16")


@pytest.mark.parametrize("name", ["tiny", "tiny-embedding"])
def test_no_alarm_on_subsets_with_bfloat16_weights_and_features(name: str) -> None:
    """Every detector, on 1,000 random subsets of 24 prompts; the built-in pairs are strict, so a change would fire."""
    arms = _Arms(name)
    generator = np.random.default_rng(11)
    found: dict[str, int] = {}
    for index in range(1000):
        run = arms.runs[index % len(arms.runs)]
        chosen = generator.choice(len(run.records), 24, replace=False)
        subset = replace(run, records=tuple(run.records[row] for row in chosen))
        findings = run_detectors(Context(arms.pair, subset, arms.golden))
        state = verdict(finding.state for finding in findings.values())
        found[str(state)] = found.get(str(state), 0) + 1
    changed = sum(
        counts_of(record).histogram != prompt.counts().histogram
        for run in arms.runs
        for record, prompt in zip(run.records, arms.golden.document.prompts, strict=True)
    )
    print(f"\n{name}: {found}; {changed} prompts of {len(arms.runs)} runs changed")  # noqa: T201
    # Noise there is: the test would see nothing in runs without any.
    assert changed > 0
    assert set(found) <= {"pass", "inconclusive"}
