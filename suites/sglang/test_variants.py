"""Ways of serving that must change nothing: no speculation, chunks, pages, trees. Several ranks: suites/gpu."""

from __future__ import annotations

from typing import Any

import pytest

from harness.engines.sglang.arguments import plain_arguments, server_arguments
from harness.engines.sglang.engine import decode
from harness.engines.sglang.launch import RunningEngine
from harness.engines.shared.sglang_counters import read_counters
from harness.errors import InputError
from harness.pair.prompts import Prompt
from suites.sglang.serving import greedy, reference, serving, shorter
from suites.support.prompts import shortest

TOKENS = 8

pytestmark = pytest.mark.slow


def _generate(engine: RunningEngine, prompts: list[Prompt], tokens: int) -> list[dict[str, Any]]:
    return engine.generate(
        input_ids=[list(prompt.ids) for prompt in prompts],
        sampling_params={"temperature": 0.0, "ignore_eos": True, "max_new_tokens": tokens},
    )


def test_without_speculation_it_puts_out_the_same() -> None:
    pair = shorter("tiny", TOKENS)
    prompts = shortest(pair, 3)
    texts = greedy(pair, prompts)
    with serving(pair, plain_arguments(pair, running=4, tokens=4096)) as engine:
        results = _generate(engine, prompts, TOKENS)
    for prompt, result in zip(prompts, results, strict=True):
        assert tuple(result["output_ids"]) == texts[prompt.id][:TOKENS], prompt.id
        # The counterpart of every count elsewhere: where nothing is proposed nothing is counted.
        assert read_counters(result["meta_info"], num_steps=4, num_draft_tokens=5).rounds == 0


def test_chunked_prefill_and_pages_change_nothing() -> None:
    pair = shorter("tiny", TOKENS)
    prompts = [prompt for prompt in shortest(pair, 40) if len(prompt.ids) > 50][:2]
    with serving(pair, chunked_prefill_size=32, page_size=16) as engine:
        records = decode(engine, prompts, pair.limits)
        log = engine.log.read_text()
    assert log.count("Prefill batch") > 2, "the prompts were not cut into chunks"
    for ours, theirs in zip(records, reference(pair, prompts), strict=True):
        assert (ours.rounds, ours.chains, ours.continuation) == (theirs.rounds, theirs.chains, theirs.continuation)


def test_a_tree_puts_out_the_same() -> None:
    pair = shorter("tiny", TOKENS)
    prompts = shortest(pair, 2)
    texts = greedy(pair, prompts)
    nodes = 8
    with serving(pair, speculative_eagle_topk=4, speculative_num_draft_tokens=nodes) as engine:
        results = _generate(engine, prompts, TOKENS)
    for prompt, result in zip(prompts, results, strict=True):
        assert tuple(result["output_ids"]) == texts[prompt.id][:TOKENS], prompt.id
        counters = read_counters(result["meta_info"], num_steps=4, num_draft_tokens=nodes)
        assert counters.rounds > 0
        assert counters.proposed == counters.rounds * (nodes - 1)


def test_adaptive_speculation_is_refused() -> None:
    pair = shorter("tiny", TOKENS).with_engine(args={"speculative_adaptive": True})
    with pytest.raises(InputError, match="counters mean something else") as caught:
        server_arguments(pair, running=1, tokens=4096)
    assert caught.value.key == "engine.args.speculative_adaptive"
