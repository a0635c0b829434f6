"""The `proposals` detector: how many changed windows rounding explains."""

from __future__ import annotations

import numpy as np
import pytest

from harness.detectors.proposals import explained_by_rounding, noise_share
from harness.golden.schema import Noise

ALPHA = 0.001 / 6


def test_noise_bound_is_the_exact_one() -> None:
    # Nothing seen in n windows: 1 - alpha^(1/n).
    quiet = Noise(windows=1000, changed=0, likelihood=1e-5, how="")
    assert noise_share(quiet, ALPHA) == pytest.approx(1 - ALPHA ** (1 / 1000))
    assert noise_share(Noise(windows=5, changed=5, likelihood=1e-5, how=""), ALPHA) == 1.0


@pytest.mark.parametrize(
    ("changed", "windows", "explained"),
    [(0, 10, True), (1, 24, True), (5, 24, False), (12, 2304, True), (60, 2304, False)],
)
def test_what_rounding_explains(changed: int, windows: int, explained: bool) -> None:
    assert explained_by_rounding(changed, windows, 0.002, ALPHA) is explained


def test_rounding_noise_of_the_recorded_size_rarely_fires() -> None:
    """A/A: noise at the true share, floor measured on as many windows. The level is ALPHA; none of 2,000 fires."""
    generator = np.random.default_rng(5)
    fired = 0
    for _ in range(2000):
        share = generator.choice([0.0, 0.001, 0.02, 0.2])
        noise = Noise(windows=2304, changed=int(generator.binomial(2304, share)), likelihood=1e-5, how="")
        seen = int(generator.binomial(2304, share))
        fired += not explained_by_rounding(seen, 2304, noise_share(noise, ALPHA), ALPHA)
    assert fired == 0
