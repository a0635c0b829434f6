"""Alpha is the chance of a false alarm of a whole verdict: A/A verdicts of strict pairs, with every question of chance.

Golden and run are two measurements of one thing. Each verdict has prompts drawn from the built-in pair, counts that
both sides disturbed, windows that rounding changed, log-probabilities that moved either way, and a floor that is
exactly the true rate, where chance alone decides. An alarm is what makes a strict pair fail: `changed` or `regression`.

All verdicts are drawn at once. Those that a necessary condition of an alarm leaves over are judged by the detectors'
own functions; on a sample of them all the same comparison shows that none is lost on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.stats
from numpy.typing import NDArray

from harness.commands.prepare import prepare
from harness.counts.acceptance import PromptCounts
from harness.counts.statistics import paired_mean
from harness.detectors.acceptance import judge_counts
from harness.detectors.base import Question, State, share_of
from harness.detectors.gate import exit_code
from harness.detectors.proposals import explained_by_rounding, noise_share
from harness.golden.find import find_golden
from harness.golden.golden_class import DEFAULT
from harness.golden.schema import GoldenPrompt, Noise, NoiseArm
from harness.golden.store import load_golden

MARGIN, K, ARMS = 0.01, 4, 4
SIZES = (24, 48, 96)
# How much rounding changes: the share of windows, of rounds that lose all that they had, and nats at each position.
LEVELS = {"float32": (1e-5, 1e-4, 1e-6), "float16": (2e-3, 5e-3, 1e-3), "bfloat16": (2e-2, 3e-2, 1e-2)}
CHUNK = 1000

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class _Verdicts:
    """Many A/A comparisons of n prompts.

    Attributes:
        golden: int64 [v, n, K + 1]: rounds by accepted count.
        now: The same of the run.
        floor: The true rate.
        windows: int64 [v, n]: windows of proposals.
        changed: int64 [v, n]: those that rounding changed in the run.
        noise: int64 [v, ARMS, n]: those that it changed in each of the golden's arms.
        losses: float64 [v, n]: losses of log-probability, summed over a prompt's positions.
        positions: int64 [v, n].
    """

    golden: Counts
    now: Counts
    floor: float
    windows: Counts
    changed: Counts
    noise: Counts
    losses: Floats
    positions: Counts


class _Source:
    """The prompts of the built-in pair, with the noise of a dtype."""

    def __init__(self, level: str, seed: int) -> None:
        golden = load_golden(find_golden(prepare("tiny"), DEFAULT))
        prompts: list[GoldenPrompt] = golden.document.prompts
        self.histograms = np.array([prompt.histogram for prompt in prompts])
        self.positions = np.array([max(prompt.output, 1) for prompt in prompts])
        self.changing, self.losing, self.moving = LEVELS[level]
        self.generator = np.random.default_rng(seed)

    def draw(self, count: int, size: int) -> _Verdicts:
        """Return comparisons of prompts drawn with replacement: the recorded ones are themselves a sample."""
        generator = self.generator
        chosen = generator.integers(0, len(self.histograms), (count, size))
        before = self.histograms[chosen]
        golden, now = self._disturbed(before), self._disturbed(before)
        windows = -(-self.positions[chosen] // K)
        # Some prompts have more near-ties than others, and in each arm some are turned over together.
        prone = generator.gamma(1.0, 1.0, (count, 1, size)) * generator.gamma(2.0, 0.5, (count, ARMS + 1, size))
        turned = generator.binomial(windows[:, None], np.minimum(self.changing * prone, 1.0))
        # Both sides' noise is the same, so that a difference is as likely one way as the other; its tails are heavy.
        spread = self.moving * np.sqrt(self.positions[chosen])
        moved = generator.standard_t(4, (2, count, size)) * spread
        return _Verdicts(
            golden,
            now,
            self._true_rate(),
            windows,
            turned[:, 0],
            turned[:, 1:],
            moved[0] - moved[1],
            self.positions[chosen],
        )

    def _disturbed(self, histograms: Counts) -> Counts:
        """Let rounds lose what they had: in most prompts none, in a few of them many."""
        shape = histograms.shape[:2]
        share = self.losing * self.generator.exponential(1.0, shape) * (self.generator.random(shape) < 0.5) * 2
        lost = self.generator.binomial(histograms, np.minimum(share, 1.0)[..., None])
        lost[..., 0] = 0
        result = histograms - lost
        result[..., 0] += lost.sum(axis=-1)
        return result

    def _true_rate(self) -> float:
        """Return the rate that both sides have on average, over all prompts."""
        rounds, accepted = self.histograms.sum(), (self.histograms * np.arange(K + 1)).sum()
        # The cap at 1 is out of reach of these shares, so the mean loss is `losing`.
        return float(accepted * (1 - self.losing) / (rounds * K))


def _states(verdicts: _Verdicts, row: int, alpha: float) -> list[State]:
    """Judge one comparison by the detectors' own functions."""
    golden, now = (_as_counts(side[row]) for side in (verdicts.golden, verdicts.now))
    judgement = judge_counts(
        golden, golden, now, margin=MARGIN, floor=verdicts.floor, clear_of_floor=False, alpha=alpha
    )
    assert judgement is not None
    noise = Noise(arms=[_arm(arm, verdicts.windows[row]) for arm in verdicts.noise[row]])
    bound = noise_share(noise, share_of(alpha, Question.PROPOSALS_NOISE))
    changed, windows = int(verdicts.changed[row].sum()), int(verdicts.windows[row].sum())
    rounding = explained_by_rounding(changed, windows, bound, share_of(alpha, Question.PROPOSALS))
    losses, positions = verdicts.losses[row].tolist(), verdicts.positions[row].tolist()
    loss = paired_mean(losses, positions, share_of(alpha, Question.LIKELIHOOD_LOW))
    assert loss is not None
    # Without a floor of noise, which would only make a claim rarer.
    moved = loss.low > 0 or loss.high < 0
    return [
        judgement.state,
        State.PASS if rounding else State.CHANGED,
        State.CHANGED if moved else State.PASS,
    ]


def _arm(changed: Counts, windows: Counts) -> NoiseArm:
    by_prompt = np.stack((changed, windows), axis=1).tolist()
    return NoiseArm(how="", windows=int(windows.sum()), changed=int(changed.sum()), by_prompt=by_prompt, likelihood=0.0)


def _as_counts(histograms: Counts) -> list[PromptCounts]:
    return [PromptCounts(str(index), tuple(row)) for index, row in enumerate(histograms.tolist())]


def _ratios(numerators: Floats, denominators: Floats) -> tuple[Floats, Floats]:
    """Return each row's ratio of sums with the influences of its prompts, [v] and [v, n]."""
    whole = denominators.sum(axis=1)
    ratios = numerators.sum(axis=1) / whole
    return ratios, (numerators - ratios[:, None] * denominators) * (numerators.shape[1] / whole)[:, None]


def _error(influences: Floats) -> Floats:
    error: Floats = influences.std(axis=1, ddof=1) / np.sqrt(influences.shape[1])
    return error


def _possible(verdicts: _Verdicts, alpha: float) -> NDArray[np.bool_]:
    """Return which comparisons can be alarms at all.

    By the t bounds alone; and by the worst arm as it was measured, without its bound, as if windows were independent.
    """
    accepted = np.arange(K + 1)
    (before, x), (after, x_now) = (
        ((side * accepted).sum(-1).astype(float), side.sum(-1) * float(K)) for side in (verdicts.golden, verdicts.now)
    )
    quantile = scipy.stats.t.isf(share_of(alpha, Question.DROP), before.shape[1] - 1) * 0.999
    recorded, recorded_by = _ratios(before, x)
    rate, rate_by = _ratios(after, x_now)
    loss, loss_by = _ratios(verdicts.losses, verdicts.positions.astype(float))
    changed, windows = verdicts.changed.sum(axis=1), verdicts.windows.sum(axis=1)
    worst = verdicts.noise.sum(axis=2).max(axis=1) / windows
    rounding = scipy.stats.binom.sf(changed - 1, windows, worst)
    possible: NDArray[np.bool_] = (
        (recorded - rate > quantile * _error(recorded_by - rate_by))
        | (rate + quantile * _error(rate_by) < verdicts.floor)
        | (np.abs(loss) > quantile * _error(loss_by))
        | ((changed > 0) & (rounding <= share_of(alpha, Question.PROPOSALS)))
    )
    return possible


def _batches(total: int) -> Iterator[_Verdicts]:
    """Yield comparisons of every dtype and size, `total` of them."""
    cells = [(level, size) for level in LEVELS for size in SIZES]
    for index, (level, size) in enumerate(cells):
        source = _Source(level, index)
        left = total // len(cells) + (index < total % len(cells))
        while left > 0:
            yield source.draw(min(CHUNK, left), size)
            left -= CHUNK


def _alarms(total: int, alpha: float) -> dict[str, int]:
    """Return the number of verdicts, of those that fail a strict pair, and by which detectors."""
    found = {"verdicts": 0, "alarms": 0, "by acceptance": 0, "by proposals": 0, "by likelihood": 0}
    for verdicts in _batches(total):
        found["verdicts"] += len(verdicts.golden)
        for row in np.flatnonzero(_possible(verdicts, alpha)):
            states = _states(verdicts, int(row), alpha)
            found["alarms"] += exit_code(states, strict=True) == 1
            for name, state in zip(("acceptance", "proposals", "likelihood"), states, strict=True):
                found[f"by {name}"] += state in (State.CHANGED, State.REGRESSION)
    return found


def _upper_bound(alarms: int, verdicts: int, confidence: float = 0.999) -> float:
    """Return the exact upper bound of a share (Clopper and Pearson, Biometrika 26, 1934)."""
    return float(scipy.stats.beta.isf(1 - confidence, alarms + 1, verdicts - alarms))


@pytest.mark.slow
@pytest.mark.parametrize(("total", "alpha"), [(50_000, 0.001), (5_000, 0.05)])
def test_a_strict_pair_fails_by_chance_no_oftener_than_alpha(total: int, alpha: float) -> None:
    found = _alarms(total, alpha)
    bound = _upper_bound(found["alarms"], found["verdicts"])
    print(  # noqa: T201
        f"\nalpha {alpha:g}: {found['alarms']} alarms in {found['verdicts']} verdicts, a level of at most {bound:.2g} "
        f"(99.9 %); {', '.join(f'{count} {name}' for name, count in found.items() if name.startswith('by'))}"
    )
    assert found["verdicts"] == total
    assert bound <= alpha
    # Chance there is: verdicts without any would prove nothing.
    assert found["alarms"] > 0


@pytest.mark.slow
def test_a_gate_that_gives_every_question_all_of_alpha_would_be_found() -> None:
    """What the shares are for: each question alone may then be wrong as often as the whole verdict should be."""
    alpha = 0.05
    found = _alarms(5_000, alpha * len(Question))
    assert found["alarms"] > scipy.stats.binom.ppf(1 - 1e-6, found["verdicts"], alpha)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_no_alarm_is_lost_among_those_that_cannot_be_one(alpha: float) -> None:
    missed: list[list[State]] = []
    for level in LEVELS:
        verdicts = _Source(level, 99).draw(100, 24)
        others = np.flatnonzero(~_possible(verdicts, alpha))
        missed += [_states(verdicts, int(row), alpha) for row in others]
    assert len(missed) > 100
    assert all(exit_code(states, strict=True) != 1 for states in missed)
