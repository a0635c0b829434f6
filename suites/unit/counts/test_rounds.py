"""Which verify rounds count, and that counting the last one in full does not bias the rate."""

from __future__ import annotations

import numpy as np
import pytest

from harness.counts.rounds import Limits, RoundCounter, accepted_prefix, walk
from harness.counts.run import EosRound

TEXT = tuple(range(100, 130))


def _chains(text: tuple[int, ...], accepted: list[int], k: int) -> np.ndarray:
    """Return chains that agree with the text for the given number of tokens at each position."""
    table = np.full((len(accepted), k), -1, np.int64)
    for position, right in enumerate(accepted):
        table[position, :right] = text[position + 1 : position + 1 + right]
    return table


@pytest.mark.parametrize(
    ("chain", "choices", "accepted"),
    [
        ((1, 2, 3), (1, 2, 3, 4), 3),
        ((1, 2, 3), (1, 9, 3, 4), 1),
        ((1, 2, 3), (9, 2, 3, 4), 0),
        # A text that EOS ended has no choice past its end.
        ((1, 2, 3), (1, 2), 2),
        ((1, 2, 3), (), 0),
        ((), (1,), 0),
    ],
)
def test_the_longest_prefix_that_the_target_chooses_too(
    chain: tuple[int, ...], choices: tuple[int, ...], accepted: int
) -> None:
    assert accepted_prefix(chain, choices) == accepted


def test_a_walk_takes_the_accepted_tokens_and_one_bonus_token() -> None:
    limits = Limits(8, 3, ())
    # From 0: 2 accepted, next start 3: none, next 4: 3 accepted, next 8 is past the limit of 8 tokens out.
    counter = walk(limits.cut(TEXT), _chains(TEXT, [2, 1, 1, 0, 3, 1, 1], 3), limits)
    assert counter.rounds == [2, 0, 3]
    assert counter.eos_round is None


@pytest.mark.parametrize(("limit", "rounds"), [(1, 0), (2, 1), (3, 2), (7, 6)])
def test_a_round_counts_while_fewer_tokens_than_the_limit_are_out(limit: int, rounds: int) -> None:
    limits = Limits(limit, 3, ())
    text = limits.cut(TEXT)
    assert limits.starts(text) == limit - 1
    assert walk(text, _chains(text, [0] * limits.starts(text), 3), limits).rounds == [0] * rounds


def test_the_last_round_is_counted_in_full() -> None:
    limits = Limits(4, 3, ())
    text = limits.cut(TEXT)
    assert len(text) == 7
    assert walk(text, _chains(text, [1, 0, 3], 3), limits).rounds == [1, 3]


def test_a_round_that_puts_out_eos_is_kept_apart() -> None:
    limits = Limits(20, 3, (105,))
    text = limits.cut(TEXT)
    assert text[-1] == 105
    assert limits.starts(text) == 5
    # From 0: all 3; from 4 the chain meets EOS, accepted or as the bonus token.
    for right, accepted in ((1, 1), (0, 0)):
        counter = walk(text, _chains(text, [3, 0, 0, 0, right], 3), limits)
        assert counter.rounds == [3]
        assert counter.eos_round == EosRound(3, accepted)


def test_a_text_that_ends_at_once_has_no_round() -> None:
    limits = Limits(20, 3, (100,))
    text = limits.cut(TEXT)
    assert text == (100,)
    assert limits.starts(text) == 0
    assert walk(text, np.zeros((0, 3), np.int64), limits).rounds == []


def test_a_decoder_drops_what_follows_eos_in_a_round() -> None:
    counter = RoundCounter(Limits(20, 4, (7,)))
    assert counter.add(4, 3, [5, 7, 6, 8]) == (5, 7)
    assert counter.rounds == []
    assert counter.eos_round == EosRound(4, 2)


def test_counting_the_last_round_in_full_is_unbiased() -> None:
    """A geometric draft with known truth: full counting hits it, dropping or cutting the last round does not."""
    generator = np.random.default_rng(0)
    k, limit, right = 4, 24, 0.8
    truth = sum(right**step for step in range(1, k + 1)) / k
    full = dropped = cut = rounds = fewer = 0
    for _ in range(4000):
        limits = Limits(limit, k, ())
        text = limits.cut(tuple(range(200)))
        wrong = generator.random((limits.starts(text), k)) > right
        accepted = np.where(wrong.any(axis=1), wrong.argmax(axis=1), k).tolist()
        made = walk(text, _chains(text, accepted, k), limits).rounds
        out = 1 + sum(made[:-1]) + len(made) - 1
        full, rounds = full + sum(made), rounds + len(made)
        dropped, fewer = dropped + sum(made[:-1]), fewer + len(made) - 1
        cut += sum(made[:-1]) + min(made[-1], limit - out)
    assert full / (rounds * k) == pytest.approx(truth, abs=0.004)
    assert dropped / (fewer * k) < truth - 0.008
    assert cut / (rounds * k) < truth - 0.008
