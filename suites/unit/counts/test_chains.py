"""Chains of engines that decode: placed at their rounds, and compared only where both sides know them."""

from __future__ import annotations

import numpy as np

from harness.counts.chains import UNKNOWN, changed_chains, known_chains
from harness.counts.run import PromptRecord

K = 2
TEXT = (1, 2, 3, 4, 5, 6, 7)


def _record(
    chains: tuple[tuple[int, ...], ...] | None, rounds: tuple[int, ...], text: tuple[int, ...] = TEXT
) -> PromptRecord:
    return PromptRecord("a", "c", "h", 3, text, rounds, (0, 0, 0), chains=chains)


def test_chains_lie_where_their_rounds_started() -> None:
    # Rounds of 1, 0 and 2 accepted tokens start at 0, 2 and 3; the EOS round has a chain and is not counted.
    record = _record(((2, 9), (8, 9), (5, 6), (7, 7)), (1, 0, 2))
    assert [start for start, _ in record.starts()] == [0, 2, 3, 6]
    chains = known_chains(record, 7, K)
    assert chains is not None
    assert chains.tolist() == [[2, 9], [UNKNOWN] * 2, [8, 9], [5, 6], [UNKNOWN] * 2, [UNKNOWN] * 2, [7, 7]]


def test_an_engine_that_knows_no_chain() -> None:
    record = _record(None, (1, 0, 2))
    assert list(record.starts()) == []
    assert known_chains(record, 6, K) is None
    assert changed_chains(record, TEXT, np.zeros((6, K), np.int64)) is None


def test_only_positions_that_both_know_are_compared() -> None:
    golden = known_chains(_record(((2, 9), (8, 9), (5, 6)), (1, 0, 2)), 6, K)
    assert golden is not None
    # This run's rounds start at 0, 1, 3: position 1 is not known to the golden.
    changed = changed_chains(_record(((2, 9), (3, 9), (5, 5)), (0, 1, 1)), TEXT, golden)
    assert changed is not None
    assert changed.tolist() == [False, True]


def test_nothing_is_compared_past_a_token_that_differs() -> None:
    golden = known_chains(_record(((2, 9), (8, 9), (5, 6)), (1, 0, 2)), 6, K)
    assert golden is not None
    changed = changed_chains(_record(((2, 9), (0, 0), (0, 0)), (1, 0, 2), (1, 2, 9, 4, 5, 6)), TEXT, golden)
    assert changed is not None
    assert changed.tolist() == [False]


def test_replay_is_compared_at_the_rounds_of_an_engine_that_decodes() -> None:
    golden = known_chains(_record(((2, 9), (8, 9), (5, 6)), (1, 0, 2)), 6, K)
    assert golden is not None
    replay = PromptRecord("a", "c", "h", 3, TEXT, (), (0, 0, 0), proposals=np.where(golden == UNKNOWN, 4, golden))
    changed = changed_chains(replay, TEXT, golden)
    assert changed is not None
    assert changed.tolist() == [False] * 3
