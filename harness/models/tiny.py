"""Tiny targets of random weights: the sizes by which a config of each real architecture is small."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

__all__ = ["LATENT", "TINY_SIZES", "TINY_TARGETS", "YARN", "move_norms_off_one"]

TINY_SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "vocab_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_EXPERTS: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 2.0,
    "original_max_position_embeddings": 128,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}
# The only sizes of latent attention, besides 512 and 64, that SGLang's decode kernel supports.
LATENT: dict[str, Any] = {"kv_lora_rank": 256, "qk_rope_head_dim": 32}
_MLA: dict[str, Any] = {
    **_EXPERTS,
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.0,
    **LATENT,
    "q_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    # SGLang reads these from the file, and transformers does not write all of them.
    "moe_layer_freq": 1,
    "norm_topk_prob": True,
}
# Of every four layers the last has full attention, the others are linear.
_LINEAR: dict[str, Any] = {
    "head_dim": 8,
    "full_attention_interval": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
_SLIDING: dict[str, Any] = {
    "head_dim": 8,
    "sliding_window": 8,
    "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 2,
}
_GLM: dict[str, Any] = {
    **_EXPERTS,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}

TINY_TARGETS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "LlamaForCausalLM": ("llama", {}),
    "MistralForCausalLM": ("mistral", {"head_dim": 8, "sliding_window": None}),
    "Ministral3ForCausalLM": ("ministral3", {"head_dim": 8}),
    "Phi3ForCausalLM": ("phi3", {}),
    "Olmo2ForCausalLM": ("olmo2", {}),
    "SmolLM3ForCausalLM": ("smollm3", {}),
    "Llama4ForCausalLM": ("llama4_text", {"head_dim": 8, "num_local_experts": 4, "intermediate_size_mlp": 48}),
    "ApertusForCausalLM": ("apertus", {"rms_norm_eps": 1e-6}),
    "Qwen2ForCausalLM": ("qwen2", {}),
    "Qwen3ForCausalLM": ("qwen3", {"head_dim": 8}),
    "Qwen2MoeForCausalLM": ("qwen2_moe", {**_EXPERTS, "num_experts": 4, "shared_expert_intermediate_size": 16}),
    "Qwen3MoeForCausalLM": ("qwen3_moe", {**_EXPERTS, "head_dim": 8, "num_experts": 4, "decoder_sparse_step": 1}),
    "MellumForCausalLM": ("mellum", {**_EXPERTS, **_SLIDING, "num_local_experts": 4, "num_experts": 4}),
    "Qwen3NextForCausalLM": (
        "qwen3_next",
        {**_EXPERTS, **_LINEAR, "num_experts": 4, "shared_expert_intermediate_size": 16},
    ),
    "Qwen3_5ForCausalLM": ("qwen3_5_text", _LINEAR),
    "Glm4MoeForCausalLM": ("glm4_moe", {**_GLM, "head_dim": 8}),
    "Glm4MoeLiteForCausalLM": ("glm4_moe_lite", {**_MLA, "n_group": 1, "rms_norm_eps": 1e-6}),
    "GptOssForCausalLM": (
        "gpt_oss",
        {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8},
    ),
    "DeepseekV2ForCausalLM": (
        "deepseek_v2",
        {
            **_MLA,
            "norm_topk_prob": False,
            "rope_parameters": YARN,
            "scoring_func": "softmax",
            "topk_method": "group_limited_greedy",
        },
    ),
    "DeepseekV3ForCausalLM": (
        "deepseek_v3",
        {**_MLA, "rope_parameters": YARN, "scoring_func": "sigmoid", "topk_method": "noaux_tc"},
    ),
    "GlmMoeDsaForCausalLM": ("glm_moe_dsa", {**_MLA, "n_group": 1}),
    "Gemma3ForCausalLM": ("gemma3_text", {"head_dim": 8, "sliding_window": 8, "query_pre_attn_scalar": 8}),
    "Gemma4ForCausalLM": (
        "gemma4_text",
        {
            **_SLIDING,
            "swa_num_key_value_heads": 2,
            "swa_head_dim": 8,
            "global_head_dim": 8,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": 64,
            "num_kv_shared_layers": 0,
        },
    ),
    "MiniMaxM2ForCausalLM": (
        "minimax_m2",
        {
            "head_dim": 8,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "scoring_func": "sigmoid",
            "use_routing_bias": True,
            "use_qk_norm": True,
            "qk_norm_type": "per_layer",
            "rotary_dim": 8,
        },
    ),
    "ExaoneMoeForCausalLM": (
        "exaone_moe",
        {
            **_EXPERTS,
            "head_dim": 8,
            "num_experts": 4,
            "num_shared_experts": 1,
            "first_k_dense_replace": 1,
            "n_group": 1,
            "topk_group": 1,
            **_SLIDING,
            "is_moe_layer": [False] + [True] * 7,
            "scoring_func": "sigmoid",
            "rms_norm_eps": 1e-5,
        },
    ),
    "LongcatFlashForCausalLM": (
        "longcat_flash",
        {
            **_MLA,
            "num_layers": 8,
            "head_dim": 8,
            "ffn_hidden_size": 48,
            "expert_ffn_hidden_size": 16,
            "moe_topk": 2,
            "zero_expert_num": 2,
            "zero_expert_type": "identity",
        },
    ),
}
"""By architecture: transformers' model type, and what its tiny config adds to the common sizes."""


def move_norms_off_one(model: nn.Module) -> None:
    """Change the norms of a model: a norm whose weights are all one looks like one that is missing or applied twice."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(torch.rand_like(parameter) * 0.5 + 0.1)
