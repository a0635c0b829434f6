"""The founding incident on the real engine: a target of Kimi's text family, small, and what its ids really capture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from harness.check import prepare
from harness.conformance.targets import YARN, write_target
from harness.engines.base import Progress
from harness.engines.reference.loaded import limits_of
from harness.engines.registry import find_engine
from harness.engines.sglang.engine import SglangEngine, decode
from harness.engines.sglang.rounds import read_capture
from harness.errors import EngineError, InputError
from harness.models.draft_contract import expected_tensors
from harness.pair.draft_spec import read_draft_spec
from harness.pair.pair import Pair, load_pair, load_prompts
from suites.random_pair import LIVE, VOCAB, WIDTH, write_draft, write_prompts
from suites.sglang.serving import PATIENCE, greedy, serving

LAYERS, TOKENS = 8, 10
# The only sizes of latent attention that SGLang's decode kernel knows beside 512 and 64.
LATENT = {"kv_lora_rank": 256, "qk_rope_head_dim": 32}
# [2, 30, 58] of Kimi's 61 layers.
IDS = [2, 4, 7]

PAIR = """
name = "kimi-like"
target = "target"
draft = "draft"
prompts = "prompts.jsonl"
chat_template = "none"
trained_as = "{trained_as}"
[decode]
num_steps = 3
max_new_tokens = {tokens}
[gate]
floor = 0.0
"""

pytestmark = pytest.mark.slow


def _pair(folder: Path, ids: list[int], *, trained_as: str = "eagle", latent: bool = False) -> Path:
    write_target("DeepseekV3ForCausalLM", folder / "target", LAYERS, **LATENT, eos_token_id=VOCAB - 1)
    _few_live_rows(folder / "target/model.safetensors")
    eagle: dict[str, Any] = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": ids, "use_aux_hidden_state": True}}
    if latent:
        _write_latent_draft(folder / "draft", eagle)
    else:
        write_draft(folder / "draft", head_dim=8, **eagle)
    write_prompts(folder / "prompts.jsonl", (9, 17, 5))
    file = folder / "kimi-like.pair.toml"
    file.write_text(PAIR.format(trained_as=trained_as, tokens=TOKENS))
    return file


def _few_live_rows(weights: Path) -> None:
    """Leave few tokens to choose from, so that target and draft of random weights agree now and then."""
    tensors = safetensors.torch.load_file(weights)
    tensors["lm_head.weight"][LIVE:] = 0
    tensors["lm_head.weight"][:LIVE] *= 30
    safetensors.torch.save_file(tensors, weights, metadata={"format": "pt"})


def _write_latent_draft(folder: Path, eagle: dict[str, Any]) -> None:
    folder.mkdir()
    config = {
        "architectures": ["Eagle3DeepseekV2ForCausalLM"],
        "model_type": "kimi_k2",
        "hidden_size": WIDTH,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "num_hidden_layers": 1,
        "vocab_size": VOCAB,
        "draft_vocab_size": VOCAB,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "rope_parameters": YARN,
        "hidden_act": "silu",
        "q_lora_rank": 24,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
        **LATENT,
        **eagle,
    }
    (folder / "config.json").write_text(json.dumps(config))
    torch.manual_seed(1)
    tensors = {}
    for name, tensor in expected_tensors(read_draft_spec(folder), len(IDS)).items():
        if name in ("embed_tokens.weight", "d2t", "t2d"):
            continue
        noise = torch.randn(tensor.shape)
        tensors[name] = 1 + 0.3 * noise if "norm" in name else 0.3 * noise
    tensors["lm_head.weight"][LIVE:] = 0
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _unread(file: Path) -> Pair:
    """Return the pair for the engine, whatever the harness would say of its ids."""
    return load_pair(file).with_engine(name="sglang")


def test_the_sentinel_is_no_boundary_today_and_the_engine_dies_of_it(tmp_path: Path) -> None:
    file = _pair(tmp_path, [-1, 2, 4], trained_as="sglang-sentinel")
    with pytest.raises(InputError, match="layer id -1 stands for no hidden state"):
        prepare(file, engine="sglang")
    pair = _unread(file)
    assert pair.wiring.trained.boundaries == (0, 3, 5)
    with pytest.raises(EngineError) as caught:
        SglangEngine(PATIENCE).run(pair, load_prompts(pair, "1"), None, Progress())
    assert "2" in str(caught.value)
    assert "captured" in str(caught.value).lower()


def test_the_ids_of_the_repair_capture_what_they_say(tmp_path: Path) -> None:
    """The engine reads [2, 4, 7] as they are, and counts what the reference engine counts at these boundaries."""
    pair = prepare(_pair(tmp_path, IDS), engine="sglang")
    assert pair.boundaries == (2, 4, 7)
    prompts = load_prompts(pair)
    with serving(pair) as engine:
        capture = read_capture(engine.watch)
        records = decode(engine, prompts, limits_of(pair))
    assert (capture.ids, capture.layers) == ((2, 4, 7), (2, 4, 7))
    expected = find_engine("reference:sequential").run(pair, prompts, None, Progress()).records
    assert [record.rounds for record in records] == [record.rounds for record in expected]
    assert [record.chains for record in records] == [record.chains for record in expected]
    assert sum(sum(record.rounds or ()) for record in records) > 0


def test_a_first_id_of_one_shifts_all_of_them_and_the_contract_says_so(tmp_path: Path) -> None:
    pair = prepare(_pair(tmp_path, [1, 3, 6]), engine="sglang")
    assert (pair.wiring.trained.boundaries, pair.wiring.served.boundaries) == ((1, 3, 6), (2, 4, 7))


def test_the_latent_draft_class_of_kimi(tmp_path: Path) -> None:
    """It runs on the states of the same boundaries; what it puts out is what the target alone would."""
    pair = prepare(_pair(tmp_path, IDS, latent=True), engine="sglang")
    prompts = load_prompts(pair)
    with serving(pair) as engine:
        capture = read_capture(engine.watch)
        records = decode(engine, prompts, limits_of(pair))
    assert capture.layers == (2, 4, 7)
    plain = load_pair(_pair(tmp_path / "plain", IDS))
    texts = greedy(plain, load_prompts(plain))
    for record in records:
        common = min(len(record.output_ids), len(texts[record.id]))
        assert record.output_ids[:common] == texts[record.id][:common]
        assert common >= TOKENS
    with pytest.raises(InputError, match="latent"):
        find_engine("reference").run(pair, prompts, None, Progress())
