"""Which tensors a draft must have, by its config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from harness.errors import InputError
from harness.models.draft_contract import check_headers, expected_tensors
from harness.models.draft_weights import load_draft
from harness.pair.draft_spec import read_draft_spec
from suites.support.random_pair import VOCAB, WIDTH

MLA: dict[str, Any] = {
    "architectures": ["Eagle3DeepseekV2ForCausalLM"],
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "vocab_size": VOCAB,
    "draft_vocab_size": 40,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
}


def test_the_tensors_of_latent_attention_are_deepseeks_but_for_the_double_input(tmp_path: Path) -> None:
    from transformers import DeepseekV3Config
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention

    (tmp_path / "config.json").write_text(json.dumps(MLA))
    expected = expected_tensors(read_draft_spec(tmp_path), 3)
    sizes = {key: value for key, value in MLA.items() if key not in ("architectures", "draft_vocab_size")}
    theirs = DeepseekV3Attention(DeepseekV3Config(**sizes, num_key_value_heads=4), 0).state_dict()
    ours = {
        name.removeprefix("midlayer.self_attn."): tuple(tensor.shape)
        for name, tensor in expected.items()
        if name.startswith("midlayer.self_attn.")
    }
    doubled = {"q_a_proj.weight", "kv_a_proj_with_mqa.weight"}
    assert ours == {
        name: (tensor.shape[0], 2 * WIDTH) if name in doubled else tuple(tensor.shape)
        for name, tensor in theirs.items()
    }


def test_a_latent_draft_is_checked_by_its_headers_and_refused_where_it_would_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MLA))
    spec = read_draft_spec(tmp_path)
    tensors = {name: torch.zeros(tensor.shape) for name, tensor in expected_tensors(spec, 3).items()}
    del tensors["embed_tokens.weight"]
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    assert check_headers(spec, 3)["fc.weight"] == (WIDTH, 3 * WIDTH)
    with pytest.raises(InputError, match="another shape"):
        check_headers(spec, 4)
    with pytest.raises(InputError, match="latent") as error:
        load_draft(spec, num_boundaries=3, target_embedding=torch.zeros(VOCAB, WIDTH), dtype=torch.float32)
    assert error.value.found == "Eagle3DeepseekV2ForCausalLM"
    del tensors["midlayer.self_attn.kv_b_proj.weight"]
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="lack tensors"):
        check_headers(spec, 3)
