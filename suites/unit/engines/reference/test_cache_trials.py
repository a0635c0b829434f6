"""On every architecture a decoder's text is what a plain forward chooses along it, or the target is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from harness.commands.measure import measure
from harness.commands.prepare import prepare
from harness.counts.run import PromptRecord
from harness.counts.ties import NEAR_TIE
from harness.engines.reference.greedy import greedy_continuations
from harness.engines.reference.loaded import load
from harness.engines.reference.replay import replay
from harness.errors import InputError
from harness.models.target import auto_class
from harness.pair.pair import load_prompts
from suites.support.architectures import NAMES, config_of, write_pair_of

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


@pytest.fixture(params=NAMES)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    config = config_of(request.param)
    if config is None:
        pytest.skip(f"transformers {transformers.__version__} does not know {request.param}")
    return write_pair_of(config, tmp_path)


def test_every_mode_puts_out_the_targets_own_text_or_refuses(file: Path, request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.params["file"]
    allowed = () if name in REFUSED else ("replay",) if name in REPLAYED else MODES
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
