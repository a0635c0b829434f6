"""On every architecture a decoder's text is what a plain forward chooses along it, or the target is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from packaging.version import Version
from torch import Tensor

from harness.commands.measure import measure
from harness.commands.prepare import prepare
from harness.counts.run import PromptRecord
from harness.counts.ties import NEAR_TIE
from harness.engines.reference.cache_trials import CacheUse, decodes_together, fault_of, require_revocable
from harness.engines.reference.greedy import greedy_continuations
from harness.engines.reference.loaded import LoadedPair, load
from harness.engines.reference.replay import replay
from harness.errors import InputError
from harness.models.target import auto_class
from harness.pair.pair import load_prompts
from suites.support.architectures import NAMES, config_of, write_pair_of
from suites.support.random_pair import write_pair

MODES = ("replay", "sequential", "batched")
# No draft of these can be measured here, in any mode: blocks with several states, or blocks in no list.
REFUSED = {"gemma3n", "LongcatFlashForCausalLM", "Llama4ForCausalLM"}
# Layers with a state that no round takes back: replayed alone.
REPLAYED = {
    "GlmMoeDsaForCausalLM",
    "Qwen3NextForCausalLM",
    "Qwen3_5ForCausalLM",
    "bamba",
    "falcon-h1",
    "falcon-mamba",
    "granite-hybrid",
    "jamba",
    "lfm2",
    "mamba",
    "mamba2",
    "minimax",
    "nemotron-h",
    "olmo-hybrid",
    "recurrent-gemma",
}


# What transformers 5.0 cannot load, run, or run causally; of Recurrent Gemma it leaves the rotary frequencies unset.
BROKEN_IN_5_0 = {"ApertusForCausalLM", "DeepseekV2ForCausalLM", "doge"}
UNSET_IN_5_0 = {"recurrent-gemma"}
OLD = Version(transformers.__version__).release[:2] == (5, 0)


@pytest.fixture(params=NAMES)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    config = config_of(request.param)
    if config is None:
        pytest.skip(f"transformers {transformers.__version__} does not know {request.param}")
    if OLD and request.param in UNSET_IN_5_0:
        pytest.skip(f"transformers {transformers.__version__} loads {request.param} with buffers that it does not set")
    return write_pair_of(config, tmp_path)


def test_every_mode_puts_out_the_targets_own_text_or_refuses(file: Path, request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.params["file"]
    refused = REFUSED | BROKEN_IN_5_0 if OLD else REFUSED
    allowed = () if name in refused else ("replay",) if name in REPLAYED else MODES
    rounds = []
    for mode in MODES:
        if mode not in allowed:
            with pytest.raises(InputError) as caught:
                measure(prepare(file, engine=f"reference:{mode}"))
            assert caught.value.next_step
            continue
        pair = prepare(file, engine=f"reference:{mode}")
        records = measure(pair).run.records
        _require_own_text(file.parent / "target", [prompt.ids for prompt in load_prompts(pair)], records)
        rounds.append([record.rounds for record in records])
    assert all(found == rounds[0] for found in rounds)
    if rounds:
        _require_the_same_alone(file)


def _require_the_same_alone(file: Path) -> None:
    """Assert that replay sees the same states of a prompt alone, where the logits of its last positions are enough."""
    loaded = load(prepare(file))
    prompts = load_prompts(loaded.pair)
    texts = greedy_continuations(loaded.target, [prompt.ids for prompt in prompts], loaded.limits)
    every = zip(replay(loaded, prompts, texts), replay(loaded, prompts, texts, max_rows=1), strict=True)
    for together, alone in every:
        assert together.rounds == alone.rounds
        assert together.sketches is not None
        assert alone.sketches is not None
        np.testing.assert_allclose(together.sketches, alone.sketches, rtol=1e-2, atol=1e-2)


@torch.inference_mode()
def _require_own_text(
    target: Path, prompts: list[tuple[int, ...]], records: tuple[PromptRecord, ...] | list[PromptRecord]
) -> None:
    """Assert that the texts are what transformers' own model chooses, in one forward over each, but for near-ties."""
    config = transformers.AutoConfig.from_pretrained(target)
    model: Any = auto_class(config).from_pretrained(target, dtype=torch.float32).eval()
    different = set()
    for prompt, record in zip(prompts, records, strict=True):
        text = torch.tensor(record.continuation)
        logits = model(torch.tensor([[*prompt, *record.continuation]]), use_cache=False).logits[0, len(prompt) - 1 : -1]
        gaps = logits.max(-1).values - logits.gather(1, text[:, None])[:, 0]
        assert len(text) > 20
        assert gaps.max() <= NEAR_TIE["float32"], (record.id, gaps)
        different.add(record.continuation)
    assert len(different) > 1


@pytest.fixture
def llama(tmp_path: Path) -> LoadedPair:
    return load(prepare(write_pair(tmp_path)))


def test_a_target_that_every_cache_serves_is_tried_once(llama: LoadedPair, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [fault_of(llama.target, use) for use in CacheUse] == [None] * 3
    monkeypatch.setattr(llama.target, "forward", None)
    assert [fault_of(llama.target, use) for use in CacheUse] == [None] * 3


@pytest.mark.parametrize("use", CacheUse)
@pytest.mark.parametrize("fault", ["forgets", "raises", "computes NaN"])
def test_a_cache_that_does_not_go_on_with_the_text_is_found(
    llama: LoadedPair, use: CacheUse, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The faults are FAKE: what caches of transformers' models do depends on its release."""
    forward = llama.target.forward

    def faulty(ids: Tensor, *, cache: object | None = None, keep: int = 0, **options: Any) -> Tensor:
        if cache is None or keep:
            return forward(ids, cache=cache, keep=keep, **options)
        if fault == "raises":
            raise AttributeError("no state")
        logits = forward(ids) if fault == "forgets" else forward(ids, cache=cache, **options)
        return logits * torch.nan if fault == "computes NaN" else logits

    monkeypatch.setattr(llama.target, "forward", faulty)
    told = {"forgets": "of their spread", "raises": "AttributeError: no state", "computes NaN": "differ by nan"}[fault]
    assert told in str(fault_of(llama.target, use))
    if use is CacheUse.TOGETHER:
        assert not decodes_together(llama.target)
    if use is CacheUse.REVOCABLE:
        with pytest.raises(InputError, match=f"LlamaForCausalLM cannot take rejected tokens back.*{told}.*by replay"):
            require_revocable(llama)


def test_memory_that_runs_out_is_no_fault_of_a_cache(llama: LoadedPair, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = llama.target.forward

    def full(ids: Tensor, *, cache: object | None = None, **options: Any) -> Tensor:
        if cache is not None:
            raise MemoryError
        return forward(ids, **options)

    monkeypatch.setattr(llama.target, "forward", full)
    with pytest.raises(MemoryError):
        fault_of(llama.target, CacheUse.ALONE)


def test_a_text_decoded_without_a_cache_is_the_same_and_it_is_told(
    llama: LoadedPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [prompt.ids for prompt in load_prompts(llama.pair)]
    expected = greedy_continuations(llama.target, prompts, llama.limits)
    module = "harness.engines.reference.greedy"
    monkeypatch.setattr(f"{module}.decodes_together", lambda _target: False)
    notes: list[str] = []
    assert greedy_continuations(llama.target, prompts, llama.limits, told=notes.append) == expected
    assert notes == []
    monkeypatch.setattr(f"{module}.fault_of", lambda _target, _use: "it forgets")
    assert greedy_continuations(llama.target, prompts, llama.limits, told=notes.append) == expected
    assert notes == [
        "each token was decoded from the whole text before it, without a cache, because of the target's: it forgets"
    ]
