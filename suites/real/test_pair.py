"""Replay of the real pair against the oracle."""

from __future__ import annotations

from dataclasses import replace

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
    rewired = replace(loaded, boundaries=boundaries)
    decoded = sequential(rewired, prompts)
    replayed = replay(rewired, prompts, [record.continuation for record in decoded])
    assert [record.rounds for record in decoded] == [record.rounds for record in replayed]
    assert all(record.rounds for record in decoded)
