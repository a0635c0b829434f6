"""A pair of Kimi's text family in small: a DeepSeek-V3 target of random weights, with either of its drafts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from harness.conformance.targets import write_target
from harness.models.draft_contract import expected_tensors
from harness.models.tiny import LATENT, YARN
from harness.pair.draft_spec import read_draft_spec
from suites.support.random_pair import LIVE, VOCAB, WIDTH, write_draft, write_prompts

LAYERS, TOKENS = 8, 10
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
strict = false
"""


def kimi_pair(folder: Path, ids: list[int], *, trained_as: str = "eagle", latent: bool = False) -> Path:
    """Write the pair; `latent` for the draft class with latent attention instead of a LLaMA layer."""
    write_target("DeepseekV3ForCausalLM", folder / "target", LAYERS, eos_token_id=VOCAB - 1)
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
