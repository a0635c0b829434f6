"""The `proposals` detector: how many changed windows rounding explains, by the worst arm, with prompts as clusters."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from harness.detectors.proposals import NoiseShare, design_effect, explained_by_rounding, noise_share
from harness.golden.schema import Noise, NoiseArm

ALPHA = 0.001 / 6
Counts = list[tuple[int, int]]


def _arm(counts: Counts, how: str = "an arm") -> NoiseArm:
    changed, windows = (sum(column) for column in zip(*counts, strict=True))
    return NoiseArm(how=how, windows=windows, changed=changed, by_prompt=[list(row) for row in counts], likelihood=1e-5)


def _even(changed: int, windows: int) -> NoiseArm:
    """An arm as version 1 kept it, without its prompts."""
    return NoiseArm(how="pooled", windows=windows, changed=changed, likelihood=1e-5)


def test_noise_bound_is_the_exact_one() -> None:
    # Nothing seen in n windows: 1 - alpha^(1/n).
    quiet = noise_share(Noise(arms=[_even(0, 1000)]), ALPHA)
    assert quiet.bound == pytest.approx(1 - ALPHA ** (1 / 1000))
    assert noise_share(Noise(arms=[_even(5, 5)]), ALPHA).bound == 1.0


def test_whole_numbers_are_the_binomial_test() -> None:
    share = NoiseShare(0.03, 1.0, "")
    for changed in range(1, 30):
        chance = float(scipy.stats.binom.sf(changed - 1, 400, 0.03))
        assert explained_by_rounding(changed, 400, share, ALPHA) is (chance > ALPHA)


@pytest.mark.parametrize(
    ("changed", "windows", "explained"),
    [(0, 10, True), (1, 24, True), (5, 24, False), (12, 2304, True), (60, 2304, False)],
)
def test_what_rounding_explains(changed: int, windows: int, explained: bool) -> None:
    assert explained_by_rounding(changed, windows, NoiseShare(0.002, 1.0, ""), ALPHA) is explained


def test_the_worst_arm_counts_and_a_pool_would_fire_on_it() -> None:
    """Of five arms one rounds as a run does: 5 % of its windows change, and 1 % of the others'."""
    quiet = [_arm([(6, 600)] * 4, f"quiet {index}") for index in range(4)]
    loud = _arm([(30, 600)] * 4, "the loud one")
    noise = Noise(arms=[*quiet, loud])
    share = noise_share(noise, ALPHA)
    assert share.how == "the loud one"
    # A run that rounds as the loud arm does.
    assert explained_by_rounding(120, 2400, share, ALPHA)
    pooled = noise_share(Noise(arms=[_even(sum(arm.changed for arm in noise.arms), 5 * 2400)]), ALPHA)
    assert not explained_by_rounding(120, 2400, pooled, ALPHA)


def test_windows_of_a_prompt_that_change_together_count_as_fewer() -> None:
    even: Counts = [(3, 30)] * 20
    together: Counts = [(30, 30)] * 2 + [(0, 30)] * 18
    assert design_effect(even) == 1.0
    # As many windows changed. If those of a prompt all change or none does, a prompt is one observation: about 30.
    assert 25 < design_effect(together) < 35
    bounds = [noise_share(Noise(arms=[_arm(counts)]), ALPHA).bound for counts in (together, even)]
    assert bounds[0] > 2 * bounds[1]


@pytest.mark.parametrize("correlated", [False, True])
def test_rounding_noise_of_the_recorded_size_rarely_fires(correlated: bool) -> None:
    """A/A: noise at the true share, whether windows are independent or whole prompts are noisier than others."""
    generator = np.random.default_rng(5)
    fired, trials = 0, 2000

    def counts(share: float) -> Counts:
        # A beta-binomial with a correlation of 0.1 within prompts.
        shares = generator.beta(9 * share, 9 * (1 - share), 96) if correlated and share else np.full(96, share)
        return [(int(part), 24) for part in generator.binomial(24, shares)]

    for _ in range(trials):
        share = float(generator.choice([0.0, 0.001, 0.02, 0.2]))
        noise, seen = Noise(arms=[_arm(counts(share))]), counts(share)
        changed = sum(part for part, _ in seen)
        fired += not explained_by_rounding(changed, 96 * 24, noise_share(noise, ALPHA), ALPHA)
    # At a level of 2 * ALPHA, more than this happens once in ten thousand.
    assert fired <= scipy.stats.binom.ppf(1 - 1e-4, trials, 2 * ALPHA)
