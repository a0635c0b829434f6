"""Tiny pairs of random weights on targets of many architectures, beyond those whose states SGLang captures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from harness.models.target import auto_class
from harness.models.tiny import TINY_SIZES, TINY_TARGETS, move_norms_off_one
from harness.pair.quiet import quiet
from harness.testing import WRAPPERS, tiny_config
from suites.support.random_pair import LIVE, PAIR, TARGET_SEED, write_draft, write_prompts

LAYERS, WINDOW = 4, 6
_MIXED = ["sliding_attention", "full_attention"] * 2
_LINEAR = ["linear_attention", "full_attention"] * 2
_SLIDING: dict[str, Any] = {"head_dim": 8, "sliding_window": WINDOW, "layer_types": _MIXED}
_MAMBA: dict[str, Any] = {
    "mamba_n_heads": 8,
    "mamba_d_head": 8,
    "mamba_d_state": 8,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 8,
}
_GEMMA: dict[str, Any] = {**_SLIDING, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 64}

OTHERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "bamba": ("bamba", {**_MAMBA, "attn_layer_indices": [1, 3], "attn_rotary_emb": 8}),
    "doge": ("doge", {}),
    "falcon-h1": ("falcon_h1", {**_MAMBA, "mamba_d_ssm": 64, "head_dim": 8}),
    "falcon-mamba": ("falcon_mamba", {"state_size": 8}),
    "gemma2": ("gemma2", {**_SLIDING, "query_pre_attn_scalar": 8}),
    "gemma3n": (
        "gemma3n_text",
        {
            **_GEMMA,
            "num_kv_shared_layers": 2,
            "altup_num_inputs": 2,
            "laurel_rank": 4,
            "activation_sparsity_pattern": [0.0] * LAYERS,
        },
    ),
    "gemma4-shared": (
        "gemma4_text",
        {**_GEMMA, "swa_num_key_value_heads": 2, "swa_head_dim": 8, "global_head_dim": 8, "num_kv_shared_layers": 2},
    ),
    "granite-hybrid": (
        "granitemoehybrid",
        {
            **_MAMBA,
            "layer_types": ["mamba", "attention"] * 2,
            "num_local_experts": 2,
            "num_experts_per_tok": 1,
            "shared_intermediate_size": 32,
        },
    ),
    "jamba": (
        "jamba",
        {
            "mamba_d_state": 8,
            "mamba_dt_rank": 4,
            "num_experts": 2,
            "num_experts_per_tok": 1,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "use_mamba_kernels": False,
        },
    ),
    "lfm2": ("lfm2", {"layer_types": ["conv", "full_attention"] * 2, "block_auto_adjust_ff_dim": False}),
    "mamba": ("mamba", {"state_size": 8}),
    "mamba2": ("mamba2", {"num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 1, "chunk_size": 8}),
    "minimax": (
        "minimax",
        {"head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1, "block_size": 8, "layer_types": _LINEAR},
    ),
    "mistral-window": ("mistral", {"head_dim": 8, "sliding_window": WINDOW}),
    # Longer than the text on which caches are tried.
    "mistral-long-window": ("mistral", {"head_dim": 8, "sliding_window": 20}),
    "nemotron-h": (
        "nemotron_h",
        {
            "mamba_num_heads": 8,
            "mamba_head_dim": 8,
            "ssm_state_size": 8,
            "n_groups": 1,
            "chunk_size": 8,
            "head_dim": 8,
            "layers_block_type": ["mamba", "attention"] * 2,
        },
    ),
    "olmo-hybrid": ("olmo_hybrid", {"layer_types": _LINEAR}),
    "olmo3": ("olmo3", {"sliding_window": WINDOW, "layer_types": _MIXED}),
    "phi3-window": ("phi3", {"sliding_window": WINDOW}),
    "qwen2-window": ("qwen2", {"sliding_window": WINDOW, "use_sliding_window": True, "layer_types": _MIXED}),
    "recurrent-gemma": ("recurrent_gemma", {"lru_width": 32, "attention_window_size": WINDOW, "head_dim": 8}),
    "starcoder2-window": ("starcoder2", {"sliding_window": WINDOW}),
}
"""By name: transformers' model type, and what its tiny config adds to the common sizes."""

NAMES = (*TINY_TARGETS, *OTHERS, *WRAPPERS)


def config_of(name: str) -> Any | None:
    """Return transformers' config of one of `NAMES`; `None` if this release does not know the architecture."""
    if name in WRAPPERS:
        config = tiny_config(name, layers=LAYERS)
        config.eos_token_id = config.text_config.eos_token_id = None
        return config
    kind, extra = TINY_TARGETS[name] if name in TINY_TARGETS else OTHERS[name]
    if kind not in CONFIG_MAPPING:
        return None
    sizes: dict[str, Any] = {**TINY_SIZES, "num_hidden_layers": LAYERS, **extra, "eos_token_id": None}
    # The tables have eight layers; the last four of each have every kind.
    for key in ("layer_types", "is_moe_layer"):
        if key in sizes:
            sizes[key] = sizes[key][-LAYERS:]
    if "num_layers" in sizes:
        sizes["num_layers"] = LAYERS
    with quiet():
        return AutoConfig.for_model(kind, **sizes)


def _number_layers(config: Any, file: Path) -> None:
    """Write the number of layers, which Nemotron-H's checkpoints have and transformers leaves out when it saves one."""
    if config.model_type == "nemotron_h":
        file.write_text(json.dumps(json.loads(file.read_text()) | {"num_hidden_layers": LAYERS}))


def write_pair_of(config: Any, folder: Path) -> Path:
    """Write a pair whose target has a config of `config_of`, and return its pair file."""
    with quiet():
        torch.manual_seed(TARGET_SEED)
        model = auto_class(config).from_config(config, dtype=torch.float32, trust_remote_code=False)
        move_norms_off_one(model)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    # So that a text depends on what is far before it.
                    parameter.mul_(4)
            head = model.get_output_embeddings().weight
            if head is not model.get_input_embeddings().weight:
                head[LIVE:] = 0
        model.save_pretrained(folder / "target")
    _number_layers(config, folder / "target" / "config.json")
    write_draft(folder / "draft")
    write_prompts(folder / "prompts.jsonl", (9, 3, 1, 14))
    file = folder / "random.pair.toml"
    file.write_text(PAIR)
    return file
