"""Targets with windows, sinks and recurrent layers: every mode agrees with replay, or refuses with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    Qwen3NextConfig,
)

from harness.commands.measure import measure
from harness.commands.prepare import prepare
from harness.engines.reference.target_cache import growing_cache, keep_first
from harness.models.target import load_target
from harness.pair.target_spec import read_target_spec
from suites.support.command import Command
from suites.support.random_pair import LIVE, PAIR, VOCAB, WIDTH, write_draft, write_prompts

# Far shorter than the texts, so that a window that is not applied, or not undone, changes them.
WINDOW = 6
SMALL: dict[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
MIXED = ["sliding_attention", "full_attention"] * 2
CONFIGS = {
    "mistral": MistralConfig(**SMALL, sliding_window=WINDOW),
    "gemma3": Gemma3TextConfig(**SMALL, sliding_window=WINDOW, layer_types=MIXED, query_pre_attn_scalar=8),
    "gpt-oss": GptOssConfig(
        **SMALL, sliding_window=WINDOW, layer_types=MIXED, num_local_experts=4, num_experts_per_tok=2
    ),
}
RECURRENT = Qwen3NextConfig(
    **SMALL,
    layer_types=["linear_attention", "full_attention"] * 2,
    linear_num_value_heads=4,
    linear_num_key_heads=2,
    linear_key_head_dim=8,
    linear_value_head_dim=8,
    num_experts=4,
    num_experts_per_tok=2,
    moe_intermediate_size=16,
    shared_expert_intermediate_size=16,
)


def _write(folder: Path, config: Any) -> Path:
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        # As in the random pair: few rows are live, so that target and draft agree often enough by chance.
        model.lm_head.weight[LIVE:] = 0
        model.lm_head.weight[:LIVE] *= 3
    model.save_pretrained(folder / "target")
    write_draft(folder / "draft")
    write_prompts(folder / "prompts.jsonl")
    file = folder / "random.pair.toml"
    file.write_text(PAIR)
    return file


@pytest.mark.parametrize("mode", ["sequential", "batched"])
@pytest.mark.parametrize("name", CONFIGS)
def test_windowed_targets_make_the_rounds_of_replay(name: str, mode: str, tmp_path: Path) -> None:
    file = _write(tmp_path, CONFIGS[name])
    expected = measure(prepare(file)).run.records
    found = measure(prepare(file, engine=f"reference:{mode}")).run.records
    for ours, theirs in zip(found, expected, strict=True):
        length = min(len(ours.continuation), len(theirs.continuation))
        assert ours.continuation[:length] == theirs.continuation[:length]
        assert ours.rounds == theirs.rounds
    # Rounds that reject some tokens and accept others, past the window.
    accepted = {count for record in found for count in record.rounds or ()}
    assert len(accepted) > 1
    assert all(len(record.continuation) > 2 * WINDOW for record in found)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_window_matters(name: str, tmp_path: Path) -> None:
    """Without it the same weights put out other texts: the test above would see a window that is not applied."""
    texts = []
    for window in (WINDOW, 512):
        config = type(CONFIGS[name])(**CONFIGS[name].to_dict() | {"sliding_window": window})
        file = _write(tmp_path / str(window), config)
        texts.append([record.continuation for record in measure(prepare(file)).run.records])
    assert texts[0] != texts[1]


@pytest.mark.parametrize("mode", ["sequential", "batched"])
def test_recurrent_layers_are_refused_where_tokens_are_taken_back(mode: str, tmp_path: Path, harness: Command) -> None:
    file = _write(tmp_path, RECURRENT)
    outcome = harness("measure", file, "--engine", f"reference:{mode}")
    assert outcome.status == 2
    assert "cannot be taken back when a draft token is rejected" in outcome.err
    assert "linear_attention" in outcome.err
    assert "--engine reference" in outcome.err


def test_recurrent_layers_are_replayed(tmp_path: Path) -> None:
    """The text that replay is measured on is what transformers itself generates."""
    pair = prepare(_write(tmp_path, RECURRENT))
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "target").eval()
    from harness.pair.pair import load_prompts

    for prompt, record in zip(load_prompts(pair), measure(pair).run.records, strict=True):
        ids = torch.tensor([prompt.ids])
        output = model.generate(ids, max_new_tokens=len(record.continuation), do_sample=False)
        assert tuple(output[0, len(prompt.ids) :].tolist()) == record.continuation


@torch.inference_mode()
def test_the_cache_is_cropped_to_a_length(tmp_path: Path) -> None:
    target = load_target(
        read_target_spec(_write(tmp_path, LlamaConfig(**SMALL)).parent / "target"), dtype=torch.float32
    )
    ids = torch.randint(0, VOCAB, (1, 12), generator=torch.Generator().manual_seed(0))
    for kept in (11, 9, 1):
        cache = growing_cache()
        target.forward(ids, cache=cache)
        keep_first(cache, kept)
        assert cache.get_seq_length() == kept
        again = target.forward(ids[:, kept:], cache=cache)[0, -1]
        torch.testing.assert_close(again, target.forward(ids)[0, -1], rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="of which 50 should stay"):
        keep_first(cache, 50)
