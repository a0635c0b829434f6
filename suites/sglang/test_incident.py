"""The founding incident on the real engine: a target of Kimi's text family, small, and what its ids really capture."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.commands.prepare import prepare
from harness.engines.base import Progress
from harness.engines.registry import find_engine
from harness.engines.sglang.engine import SglangEngine, decode
from harness.engines.sglang.rounds import read_capture
from harness.errors import EngineError, InputError
from harness.pair.pair import Pair, load_pair, load_prompts
from suites.sglang.kimi import IDS, kimi_pair
from suites.sglang.serving import PATIENCE, serving

pytestmark = pytest.mark.slow


def _unread(file: Path) -> Pair:
    """Return the pair for the engine, whatever the harness would say of its ids."""
    return load_pair(file).with_engine(name="sglang")


def test_the_sentinel_is_no_boundary_today_and_the_engine_dies_of_it(tmp_path: Path) -> None:
    file = kimi_pair(tmp_path, [-1, 2, 4], trained_as="sglang-sentinel")
    with pytest.raises(InputError, match="layer id -1 does not stand for a hidden state"):
        prepare(file, engine="sglang")
    pair = _unread(file)
    assert pair.wiring.trained.boundaries == (0, 3, 5)
    with pytest.raises(EngineError) as caught:
        SglangEngine(PATIENCE).run(pair, load_prompts(pair, "1"), None, Progress())
    assert "2" in str(caught.value)
    assert "captured" in str(caught.value).lower()


def test_the_ids_of_the_repair_capture_what_they_say(tmp_path: Path) -> None:
    """The engine reads [2, 4, 7] as they are, and counts what the reference engine counts at these boundaries."""
    pair = prepare(kimi_pair(tmp_path, IDS), engine="sglang")
    assert pair.boundaries == (2, 4, 7)
    prompts = load_prompts(pair)
    with serving(pair) as engine:
        capture = read_capture(engine.watch)
        records = decode(engine, prompts, pair.limits)
    assert (capture.ids, capture.layers) == ((2, 4, 7), (2, 4, 7))
    expected = find_engine("reference:sequential").run(pair, prompts, None, Progress()).records
    assert [record.rounds for record in records] == [record.rounds for record in expected]
    assert [record.chains for record in records] == [record.chains for record in expected]
    assert sum(sum(record.rounds or ()) for record in records) > 0


def test_a_first_id_of_one_shifts_all_of_them_and_the_contract_says_so(tmp_path: Path) -> None:
    pair = prepare(kimi_pair(tmp_path, [1, 3, 6]), engine="sglang")
    assert (pair.wiring.trained.boundaries, pair.wiring.served.boundaries) == ((1, 3, 6), (2, 4, 7))
