"""Intervals on data whose truth is known."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from harness.counts.statistics import (
    Interval,
    paired_drop,
    paired_mean,
    permuted,
    prompts_needed,
    prompts_to_clear,
    rate_interval,
    ratio,
    subset_rate,
)

ALPHA = 0.001 / 6


def _lists(columns: tuple[np.ndarray, np.ndarray]) -> tuple[list[float], list[float]]:
    return columns[0].tolist(), columns[1].tolist()


def _flipped(differences: np.ndarray) -> float:
    """The p-value of differences between two measurements: the sign-flip test."""
    return permuted(np.stack((differences, np.zeros_like(differences))))


def _pair(generator: np.random.Generator, prompts: int, drop: float) -> tuple[tuple[list[float], list[float]], ...]:
    """Return golden and new counts of prompts whose own rate varies, every new round losing `drop` of its tokens."""
    rates = np.clip(generator.normal(0.9, 0.05, prompts), 0, 1)
    proposed = np.full(prompts, 92.0)
    golden = generator.binomial(92, rates).astype(float)
    lost = generator.binomial(golden.astype(int), drop / 0.9)
    return (golden.tolist(), proposed.tolist()), ((golden - lost).tolist(), proposed.tolist())


def test_no_change_is_an_exact_zero() -> None:
    columns = ([5.0, 7.0, 3.0], [10.0, 9.0, 8.0])
    drop = paired_drop(columns, columns, ALPHA)
    assert drop is not None
    assert (drop.estimate, drop.low, drop.high, drop.changed_prompts) == (0, 0, 0, 0)


def test_nothing_measured_has_no_drop() -> None:
    assert paired_drop(([0.0], [0.0]), ([1.0], [2.0]), ALPHA) is None
    assert rate_interval([0.0, 0.0], [0.0, 0.0], ALPHA) is None


def test_one_prompt_decides_nothing() -> None:
    drop = paired_drop(([9.0], [10.0]), ([1.0], [10.0]), ALPHA)
    assert drop is not None
    # As far as a rate of 0.9 can rise or fall.
    assert drop.low == pytest.approx(-0.1)
    assert drop.high == 0.9
    rate = rate_interval([9.0], [10.0], ALPHA)
    assert rate is not None
    assert (rate.low, rate.high) == (0.0, 1.0)


def test_few_changed_prompts_never_claim_a_loss() -> None:
    """Twelve of 96 prompts losing everything could be chance signs: 2^-12 is above alpha / 6; with 13 it is not."""
    proposed = [92.0] * 96
    for changed, claimed in ((12, False), (13, True)):
        now = [60.0 if index < changed else 80.0 for index in range(96)]
        drop = paired_drop(([80.0] * 96, proposed), (now, proposed), ALPHA)
        assert drop is not None
        assert drop.changed_prompts == changed
        assert (drop.low > 0) is (claimed and drop.estimate > 0)


def test_a_drop_of_two_points_is_found_and_its_sign_is_right() -> None:
    generator = np.random.default_rng(1)
    found = 0
    for _ in range(40):
        golden, now = _pair(generator, 96, 0.02)
        drop = paired_drop(golden, now, ALPHA)
        assert drop is not None
        assert drop.low <= drop.estimate <= drop.high
        found += drop.low > 0
        better = paired_drop(now, golden, ALPHA)
        assert better is not None
        assert better.high <= 0 or drop.low <= 0
    assert found >= 38


def test_no_difference_claims_no_loss() -> None:
    """Sparse, skewed differences without a mean: where a percentile bootstrap fires too often."""
    generator = np.random.default_rng(2)
    fired = 0
    for _ in range(300):
        base = generator.integers(60, 90, 96).astype(float)
        change = generator.choice([0.0, 0.0, 0.0, 1.0, -1.0, 6.0, -6.0], 96)
        drop = paired_drop((base.tolist(), [92.0] * 96), ((base - change).tolist(), [92.0] * 96), 0.01)
        assert drop is not None
        fired += drop.low > 0
    # 0.01 of 300 is 3; more than 9 has a probability below 0.001.
    assert fired <= 9


@pytest.mark.parametrize("count", [2, 5, 12, 14])
def test_two_measurements_are_scipys_exact_permutation_test(count: int) -> None:
    generator = np.random.default_rng(count)
    for differences in (
        generator.normal(0.3, 1, count),
        generator.integers(-3, 4, count).astype(float),
        np.ones(count),
    ):
        expected = scipy.stats.permutation_test(
            (differences,),
            lambda sample, axis: sample.sum(axis=axis),
            permutation_type="samples",
            vectorized=True,
            n_resamples=1 << 15,
            alternative="greater",
        ).pvalue
        # A few of the 2^m sums lie within the grid's rounding of the observed one.
        assert expected - 1e-12 <= _flipped(differences) <= expected + 16 / 2**count


def test_two_measurements_of_many_is_near_normal_theory() -> None:
    differences = np.random.default_rng(4).normal(0.02, 0.06, 96)
    score = differences.sum() / math.sqrt((differences**2).sum())
    assert _flipped(differences) == pytest.approx(float(scipy.stats.norm.sf(score)), rel=0.1)
    assert permuted(np.zeros((2, 4))) == 1.0


def test_exchanging_the_sides_turns_the_drop_and_unchanged_prompts_do_not_count() -> None:
    """Unequal rounds: a prompt that did not change stays out of the permutation, whatever its share of rounds."""
    golden = ([50.0] * 11 + [9.0, 80.0, 7.0], [60.0] * 11 + [10.0, 90.0, 12.0])
    now = ([40.0] * 11 + [9.0, 80.0, 7.0], [64.0] * 11 + [10.0, 90.0, 12.0])
    drop, rise = paired_drop(golden, now, 0.001), paired_drop(now, golden, 0.001)
    assert drop is not None
    assert rise is not None
    assert drop.changed_prompts == 11
    assert [drop.estimate, drop.low] == pytest.approx([-rise.estimate, -rise.high])
    # 2^-11 is 0.0005.
    assert drop.low > 0
    stricter = paired_drop(golden, now, 0.0004)
    assert stricter is not None
    assert stricter.low <= 0


def test_the_rate_of_all_prompts_from_all_of_them_is_their_own() -> None:
    generator = np.random.default_rng(8)
    whole = (generator.integers(40, 80, 50).tolist(), [92.0] * 50)
    now = (generator.integers(30, 80, 50).tolist(), generator.integers(80, 99, 50).tolist())
    plain, estimated = rate_interval(*now, ALPHA), subset_rate(whole, whole, now, ALPHA)
    assert plain is not None
    assert estimated is not None
    assert [estimated.estimate, estimated.low, estimated.high] == pytest.approx([plain.estimate, plain.low, plain.high])


def test_the_rate_of_all_prompts_from_some_covers_the_truth_and_is_sharper() -> None:
    generator = np.random.default_rng(9)
    missed, narrower = 0, 0
    for _ in range(400):
        # Prompts differ widely; the change is alike in all of them, and its truth is a rate of 0.78.
        rates = generator.beta(4, 1, 96)
        proposed = np.full(96, 88.0)
        golden = generator.binomial(88, rates).astype(float)
        now = golden - generator.binomial(golden.astype(int), 0.025)
        chosen = generator.choice(96, 24, replace=False)
        subset = subset_rate(
            (golden.tolist(), proposed.tolist()),
            (golden[chosen].tolist(), proposed[chosen].tolist()),
            (now[chosen].tolist(), proposed[chosen].tolist()),
            0.025,
        )
        own = rate_interval(now[chosen].tolist(), proposed[chosen].tolist(), 0.025)
        assert subset is not None
        assert own is not None
        missed += not subset.low <= 0.8 * 0.975 <= subset.high
        narrower += subset.high - subset.low < own.high - own.low
    # Both sides together miss in 5 %, 20 of 400.
    assert missed <= 38
    assert narrower > 390


def test_interval_covers_the_truth() -> None:
    generator = np.random.default_rng(3)
    missed = 0
    for _ in range(400):
        rates = generator.beta(18, 2, 64)
        proposed = generator.integers(60, 120, 64)
        interval = rate_interval(generator.binomial(proposed, rates).tolist(), proposed.tolist(), 0.025)
        assert interval is not None
        missed += not interval.low <= 0.9 <= interval.high
    # Both sides together miss in 5 %, 20 of 400.
    assert missed <= 38


def test_clusters_widen_the_interval() -> None:
    """Rounds of one prompt are alike: a binomial error over all rounds would be far too small."""
    accepted = [90.0] * 8 + [40.0] * 8
    value = ratio(accepted, [100.0] * 16)
    assert value is not None
    assert value.standard_error is not None
    binomial = math.sqrt(0.65 * 0.35 / 1600)
    assert value.standard_error > 4 * binomial


def test_weighted_mean_of_differences() -> None:
    mean = paired_mean([2.0, 0.0, 4.0], [10.0, 10.0, 20.0], ALPHA)
    assert mean is not None
    assert mean.estimate == pytest.approx(6 / 40)
    assert mean.changed_prompts == 2


def test_prompts_that_would_decide() -> None:
    undecided = Interval(0.005, -0.02, 0.03, 0.006, 64, ALPHA)
    # The half-width of 0.025 must shrink to 0.005: 25 times the prompts.
    assert prompts_needed(undecided, 0.01) == 64 * 25
    # The floor of 0.70 is 0.01 away; the half-width of 0.04 must shrink to that.
    assert prompts_to_clear(Interval(0.71, 0.67, 0.75, 0.01, 64, ALPHA), 0.70) == 64 * 16
    assert prompts_to_clear(Interval(0.70, 0.67, 0.75, 0.01, 64, ALPHA), 0.70) is None
    assert prompts_needed(Interval(0.01, -math.inf, math.inf, None, 1, ALPHA), 0.01) is None
    # A bound that ends at what is possible does not show how far chance reaches: the standard error does.
    clipped, whole = Interval(0.004, 0.0, 0.006, 0.02, 64, ALPHA), Interval(0.004, -0.072, 0.08, 0.02, 64, ALPHA)
    assert prompts_needed(clipped, 0.01) == pytest.approx(prompts_needed(whole, 0.01), rel=0.05)


@pytest.mark.parametrize("rate", [0.001, 0.02, 0.5, 0.98, 1.0])
@pytest.mark.parametrize("most", [1, 4])
@pytest.mark.parametrize("prompts", [1, 2, 3, 24])
def test_bounds_of_a_drop_stay_within_what_is_possible(rate: float, most: int, prompts: int) -> None:
    """A run's ratio is 0 at least and `most` at most, however few prompts there are and however much they differ."""
    generator = np.random.default_rng(prompts)
    rounds = generator.integers(1, 300, prompts).astype(float)
    golden = (generator.binomial(rounds.astype(int), rate) * float(most), rounds)
    recorded = golden[0].sum() / rounds.sum()
    nothing, everything = np.zeros(prompts), rounds * most
    some = np.where(generator.random(prompts) < 0.5, nothing, everything)
    for now in (nothing, everything, some):
        drop = paired_drop(_lists(golden), _lists((now, rounds)), ALPHA, most=most)
        assert drop is not None
        assert recorded - most <= drop.low <= drop.estimate <= drop.high <= recorded


def test_the_smallest_alpha_still_finds_a_collapse() -> None:
    golden = ([80.0 + index % 3 for index in range(96)], [92.0] * 96)
    drop = paired_drop(golden, ([2.0 + index % 5 for index in range(96)], [92.0] * 96), 1e-12 / 6)
    assert drop is not None
    assert 0.8 < drop.low < drop.estimate < drop.high < 0.9


@pytest.mark.parametrize("runs", [2, 3, 4])
def test_several_golden_runs_permute_which_measurement_is_the_runs(runs: int) -> None:
    """Against every choice, written out."""
    generator = np.random.default_rng(runs)
    for _ in range(20):
        values = generator.normal(0, 1, (runs + 1, 4))
        values[-1] -= 0.5
        choices = list(itertools.product(range(runs + 1), repeat=4))
        sums = [sum(values[choice[column], column] for column in range(4)) for choice in choices]
        expected = np.mean([total <= values[-1].sum() + 1e-12 for total in sums])
        # The grid never makes it smaller, and lets few sums in that lie within it.
        assert expected - 1e-12 <= permuted(values) <= expected + 3 / len(choices)


def test_a_drop_from_the_mean_of_the_golden_runs() -> None:
    generator = np.random.default_rng(3)
    proposed = [400.0] * 40

    def run(rate: float) -> tuple[list[float], list[float]]:
        return generator.binomial(400, rate, 40).astype(float).tolist(), proposed

    golden = [run(0.7) for _ in range(3)]
    drop = paired_drop(golden[0], run(0.6), 0.001, again=golden[1:])
    assert drop is not None
    assert drop.estimate == pytest.approx(0.1, abs=0.01)
    assert drop.low > 0.05
    same = paired_drop(golden[0], golden[0], 0.001, again=[golden[0], golden[0]])
    assert same is not None
    assert (same.estimate, same.changed_prompts) == (0.0, 0)


def test_an_engine_that_differs_from_itself_alarms_no_more_often_than_alpha() -> None:
    """A/A with three golden runs: the truth is no change, and 0.01 of the lower bounds may be above zero."""
    generator = np.random.default_rng(11)
    level, trials, alarms = 0.01, 2000, 0
    for _ in range(trials):
        # Few prompts differ between runs, and by much: that is what defeats a t bound alone.
        base = generator.integers(200, 320, 24).astype(float)
        flips = generator.random((4, 24)) < 0.1
        runs = base - flips * generator.integers(10, 60, (4, 24))
        columns = [(row.tolist(), [400.0] * 24) for row in runs]
        drop = paired_drop(columns[0], columns[3], level, again=columns[1:3])
        assert drop is not None
        alarms += drop.low > 0
    assert scipy.stats.binom.sf(alarms - 1, trials, level) > 1e-4, alarms
