"""Replay of the real pair against the oracle."""

from __future__ import annotations

import pytest

from harness.commands.prepare import prepare
from harness.engines.reference.loaded import load
from harness.engines.reference.replay import replay
from harness.engines.reference.sequential import sequential
from harness.pair.pair import load_prompts
from suites.support.real_target import require_target


@pytest.mark.parametrize("shift", [0, 1])
def test_replay_is_the_sequential_decoder(shift: int) -> None:
    """In float64, round by round, wired right and wrong."""
    require_target()
    loaded = load(prepare("smollm2", dtype="float64"))
    prompts = load_prompts(loaded.pair, "2")
    boundaries = tuple(boundary + shift for boundary in loaded.pair.boundaries)
    decoded = sequential(loaded.target, loaded.draft, boundaries, prompts, loaded.limits)
    texts = [record.continuation for record in decoded]
    replayed = replay(loaded.target, loaded.draft, boundaries, prompts, texts, loaded.limits)
    assert [record.rounds for record in decoded] == [record.rounds for record in replayed]
    assert all(record.rounds for record in decoded)
