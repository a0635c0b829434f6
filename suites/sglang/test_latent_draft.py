"""Kimi's draft class with latent attention, on the real engine; a file of its own, to run beside the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.commands.prepare import prepare
from harness.engines.base import Progress
from harness.engines.registry import find_engine
from harness.engines.sglang.engine import decode
from harness.engines.sglang.rounds import read_capture
from harness.errors import InputError
from harness.pair.pair import load_pair, load_prompts
from suites.sglang.kimi import IDS, TOKENS, kimi_pair
from suites.sglang.serving import greedy, serving

pytestmark = pytest.mark.slow


def test_the_latent_draft_class_of_kimi(tmp_path: Path) -> None:
    """It runs on the states of the same boundaries; what it puts out is what the target alone would."""
    pair = prepare(kimi_pair(tmp_path, IDS, latent=True), engine="sglang")
    prompts = load_prompts(pair)
    with serving(pair) as engine:
        capture = read_capture(engine.watch)
        records = decode(engine, prompts, pair.limits)
    assert capture.layers == (2, 4, 7)
    plain = load_pair(kimi_pair(tmp_path / "plain", IDS))
    texts = greedy(plain, load_prompts(plain))
    for record in records:
        common = min(len(record.continuation), len(texts[record.id]))
        assert record.continuation[:common] == texts[record.id][:common]
        assert common >= TOKENS
    with pytest.raises(InputError, match="latent"):
        find_engine("reference").run(pair, prompts, None, Progress())
