"""The real pair on the real SGLang: its rounds and its output are the reference engine's."""

from __future__ import annotations

import importlib.util

import pytest

from harness.counts.acceptance import counts_of, measure_acceptance
from harness.engines.sglang.engine import decode
from suites.sglang.serving import greedy, reference, serving, shorter
from suites.support.prompts import shortest
from suites.support.real_target import require_target

PROMPTS, TOKENS = 4, 24

pytestmark = [
    pytest.mark.slow,
    pytest.mark.sglang,
    pytest.mark.skipif(
        importlib.util.find_spec("sglang") is None,
        reason="SGLang is not installed: python -m tox -e sglang-cpu -- suites/real/test_sglang.py",
    ),
]


def test_rounds_equal_the_reference() -> None:
    require_target()
    pair = shorter("smollm2", TOKENS)
    prompts = shortest(pair, PROMPTS)
    with serving(pair) as engine:
        records = decode(engine, prompts, pair.limits)
    texts = greedy(pair, prompts)
    for ours, theirs in zip(records, reference(pair, prompts), strict=True):
        assert ours.rounds, ours.id
        assert ours.rounds == theirs.rounds, ours.id
        assert ours.chains == theirs.chains, ours.id
        assert ours.continuation == theirs.continuation == texts[ours.id][: len(ours.continuation)], ours.id
    # With the incident's wiring this draft's rate is 0.1.
    counts = measure_acceptance(map(counts_of, records))
    assert counts.rate is not None
    assert counts.rate > 0.7
