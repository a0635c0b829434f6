"""Every definition of acceptance, on counts small enough to work out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.counts.acceptance import PromptCounts, counts_of, measure_acceptance, repeated_ngram_ratio
from harness.counts.run import EosRound, PromptRecord, histogram_of
from harness.report.bodies.base import acceptance_body, plain


def _counts(*histograms: tuple[int, ...]) -> list[PromptCounts]:
    return [PromptCounts(f"p{index}", histogram) for index, histogram in enumerate(histograms)]


def test_rates_of_a_worked_example() -> None:
    # k = 3; rounds accepting 0, 1, 3, 3 and 2, 2: 11 of 18 tokens in 6 rounds.
    acceptance = measure_acceptance(_counts((1, 1, 0, 2), (0, 0, 2, 0)))
    assert (acceptance.rounds, acceptance.accepted, acceptance.proposed, acceptance.prompts) == (6, 11, 18, 2)
    assert acceptance.rate == pytest.approx(11 / 18)
    assert acceptance.length == pytest.approx(1 + 11 / 6)
    assert acceptance.unconditional == pytest.approx((5 / 6, 4 / 6, 2 / 6))
    assert acceptance.conditional == pytest.approx((5 / 6, 4 / 5, 2 / 4))


def test_the_bonus_token_is_in_the_length_and_not_in_the_rate() -> None:
    acceptance = measure_acceptance(_counts((4, 0, 0)))
    assert acceptance.rate == 0
    assert acceptance.length == 1
    everything = measure_acceptance(_counts((0, 0, 4)))
    assert everything.rate == 1
    assert everything.length == 3


def test_rate_is_a_ratio_of_sums_and_no_mean_of_ratios() -> None:
    # One round of 1 accepted, nine of 0: the mean of the prompts' rates would be 0.5.
    acceptance = measure_acceptance(_counts((0, 1), (9, 0)))
    assert acceptance.rate == pytest.approx(0.1)


def test_nothing_measured_is_none_and_never_a_number() -> None:
    for counts in ([], _counts((0, 0, 0))):
        acceptance = measure_acceptance(counts)
        assert acceptance.rate is None
        assert acceptance.length is None
        assert all(value is None for value in (*acceptance.unconditional, *acceptance.conditional))


def test_conditional_rate_is_none_where_the_position_was_never_reached() -> None:
    acceptance = measure_acceptance(_counts((3, 2, 0, 0)))
    assert acceptance.conditional[0] == pytest.approx(0.4)
    assert acceptance.conditional[1:] == (0.0, None)


def test_chains_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="different lengths"):
        measure_acceptance(_counts((1, 0), (1, 0, 0)))


@given(st.lists(st.lists(st.integers(0, 50), min_size=4, max_size=4).map(tuple), min_size=1, max_size=6))
def test_identities(histograms: list[tuple[int, ...]]) -> None:
    acceptance = measure_acceptance(_counts(*histograms))
    if acceptance.rounds == 0:
        assert acceptance.rate is None
        return
    assert acceptance.rate is not None
    assert acceptance.length is not None
    assert 0 <= acceptance.rate <= 1
    unconditional = [value for value in acceptance.unconditional if value is not None]
    assert sum(unconditional) == pytest.approx(acceptance.length - 1)
    assert unconditional == sorted(unconditional, reverse=True)
    assert acceptance.rate == pytest.approx((acceptance.length - 1) / 3)


def test_step_accuracy_counts_all_positions_and_no_unknown_ones() -> None:
    correct = np.array([[1, 0], [1, 1], [0, -1]], np.int8)
    record = PromptRecord("p", "c", "h", 3, (5, 6, 7), (1,), (0, 1, 0), correct=correct)
    counts = counts_of(record)
    assert counts.correct == (2, 1)
    assert counts.evaluated == (3, 2)
    assert measure_acceptance([counts]).step_accuracy == pytest.approx((2 / 3, 1 / 2))


def test_the_round_that_ended_the_text_is_in_no_rate() -> None:
    record = PromptRecord("p", "c", "h", 3, (5, 2), (), histogram_of((), 3), eos_round=EosRound(3, 0))
    assert measure_acceptance([counts_of(record)]).rounds == 0


def test_loop_share() -> None:
    assert repeated_ngram_ratio(list(range(40))) == 0
    assert repeated_ngram_ratio([1, 2] * 30) > 0.9
    assert repeated_ngram_ratio([1, 2, 3]) == 0


def test_every_rate_carries_its_clustered_standard_error() -> None:
    """Against a jackknife over prompts, which knows nothing of the formula."""
    generator = np.random.default_rng(3)
    prompts = [
        PromptCounts(
            str(index),
            tuple(generator.integers(0, 9, 4).tolist()),
            tuple(generator.integers(0, 30, 3).tolist()),
            (30, 31, 32),
        )
        for index in range(60)
    ]
    whole = measure_acceptance(prompts)
    assert set(whole.errors) == {"rate", "length", "u0", "u1", "u2", "c0", "c1", "c2", "t0", "t1", "t2"}
    rest = [measure_acceptance(prompts[:index] + prompts[index + 1 :]) for index in range(60)]
    values = {
        "rate": [one.rate for one in rest],
        "length": [one.length for one in rest],
        "u1": [one.unconditional[1] for one in rest],
        "c2": [one.conditional[2] for one in rest],
        "t0": [one.step_accuracy[0] for one in rest],
    }
    for name, jackknifed in values.items():
        expected = math.sqrt(59 * float(np.var(np.array(jackknifed, float))))
        assert whole.errors[name] == pytest.approx(expected, rel=0.03), name
    errors = plain(acceptance_body(whole))["standard_errors"]
    assert errors["rate"] == whole.errors["rate"]
    assert errors["position_rates"]["conditional"][2] == whole.errors["c2"]


def test_one_prompt_has_no_standard_error() -> None:
    assert measure_acceptance([PromptCounts("a", (1, 2))]).errors["rate"] is None
