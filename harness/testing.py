"""Tiny targets of real architectures, and hypothesis strategies over layer ids and draft configs, for anybody's tests.

    from hypothesis import given
    from harness.testing import layer_cases, tiny_target

    @given(case=layer_cases())
    def test_my_capture(case):
        model = tiny_target(case.architecture, layers=case.num_layers)
        ...

Needs hypothesis: `pip install "acceptance-harness[testing]"`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import torch
from torch import nn

from harness.errors import InputError
from harness.facts.conventions import write_ids
from harness.pair.quiet import quiet

__all__ = [
    "ARCHITECTURES",
    "LayerCase",
    "architectures",
    "boundary_lists",
    "draft_configs",
    "layer_cases",
    "layer_ids",
    "malformed_draft_configs",
    "tiny_target",
]

_SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "vocab_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_EXPERTS: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}

ARCHITECTURES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "LlamaForCausalLM": ("llama", {}),
    "MistralForCausalLM": ("mistral", {"head_dim": 8, "sliding_window": None}),
    "Qwen2ForCausalLM": ("qwen2", {}),
    "Qwen3ForCausalLM": ("qwen3", {"head_dim": 8}),
    "Qwen3MoeForCausalLM": ("qwen3_moe", {**_EXPERTS, "head_dim": 8, "num_experts": 4, "decoder_sparse_step": 1}),
    "DeepseekV3ForCausalLM": (
        "deepseek_v3",
        {
            **_EXPERTS,
            "num_key_value_heads": 4,
            "n_routed_experts": 4,
            "n_shared_experts": 1,
            "n_group": 2,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "kv_lora_rank": 16,
            "q_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
        },
    ),
    "GptOssForCausalLM": (
        "gpt_oss",
        {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8},
    ),
    "Glm4MoeForCausalLM": (
        "glm4_moe",
        {
            **_EXPERTS,
            "head_dim": 8,
            "n_routed_experts": 4,
            "n_shared_experts": 1,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 1,
        },
    ),
    "Gemma3ForCausalLM": ("gemma3_text", {"head_dim": 8, "sliding_window": 8, "query_pre_attn_scalar": 8}),
    "Phi3ForCausalLM": ("phi3", {}),
    "Olmo2ForCausalLM": ("olmo2", {}),
    "SmolLM3ForCausalLM": ("smollm3", {}),
}
"""By architecture: transformers' model type, and what its tiny config adds to the common sizes."""


@functools.lru_cache(maxsize=128)
def tiny_target(architecture: str, *, layers: int = 5, dtype: torch.dtype = torch.float32, seed: int = 0) -> nn.Module:
    """Return a transformers causal language model of random weights, norm weights off one, in evaluation mode.

    One model is made for each set of arguments and shared: do not change it.

    Args:
        architecture: One of `ARCHITECTURES`.
        layers: Decoder blocks, N.
        dtype: Of its weights.
        seed: Of its weights.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    kind, extra = ARCHITECTURES[architecture]
    with quiet():
        config = AutoConfig.for_model(kind, num_hidden_layers=layers, **{**_SIZES, **extra})
        generator = torch.random.get_rng_state()
        torch.manual_seed(seed)
        model: nn.Module = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                # A norm whose weights are one cannot be told from a norm that is missing, or applied twice.
                if "norm" in name:
                    parameter.add_(torch.rand_like(parameter) * 0.5 + 0.1)
        torch.random.set_rng_state(generator)
    return model.to(dtype).eval().requires_grad_(False)


@dataclass(frozen=True)
class LayerCase:
    """A target and what is captured of it.

    Attributes:
        architecture: One of `ARCHITECTURES`.
        num_layers: Its decoder blocks, N.
        boundaries: Boundaries from 0 to N, in the order of concatenation, repeats allowed.
    """

    architecture: str
    num_layers: int
    boundaries: tuple[int, ...]


def architectures() -> st.SearchStrategy[str]:
    """Return one of `ARCHITECTURES`; shrinks to Llama."""
    return st.sampled_from(list(ARCHITECTURES))


def boundary_lists(num_layers: int, *, max_size: int = 5) -> st.SearchStrategy[tuple[int, ...]]:
    """Return boundaries of a target of `num_layers` blocks: any order, repeats, the embedding and the last included."""
    return st.lists(st.integers(0, num_layers), min_size=1, max_size=max_size).map(tuple)


@st.composite
def layer_cases(draw: st.DrawFn, *, most_layers: int = 7) -> LayerCase:
    """Return a target with boundaries to capture."""
    architecture, layers = draw(architectures()), draw(st.integers(1, most_layers))
    return LayerCase(architecture, layers, draw(boundary_lists(layers)))


@st.composite
def layer_ids(
    draw: st.DrawFn, convention: str, *, num_layers: int, architecture: str = "LlamaForCausalLM"
) -> tuple[int, ...]:
    """Return layer ids that are valid in a convention, as `sglang==0.5.23`, for a target."""
    boundaries = draw(boundary_lists(num_layers))
    for candidate in (boundaries, tuple(sorted(set(boundaries))), (1,), (2,)):
        try:
            return write_ids(candidate, convention, num_layers=num_layers, architecture=architecture).ids
        except InputError:
            # Order, repeats or an end of the range cannot be said: fall back on what can.
            continue
    raise AssertionError(f"{convention} can say no boundary of {num_layers} layers")


_IDS = "eagle_aux_hidden_state_layer_ids"


@st.composite
def draft_configs(draw: st.DrawFn) -> dict[str, Any]:
    """Return the layer part of a draft's config, of every public kind that is an EAGLE-3 draft."""
    ids = draw(st.none() | st.lists(st.integers(-1, 60), min_size=3, max_size=3))
    config: dict[str, Any] = {"hidden_size": 4096, "draft_vocab_size": 32000}
    kind = draw(
        st.sampled_from(
            ["LlamaForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM", "Eagle3LlamaForCausalLM", "LlamaForCausalLM"]
        )
        | st.just("Eagle3Speculator")
    )
    config["architectures"] = [kind]
    if kind == "Eagle3Speculator":
        config |= {"speculators_model_type": "eagle3", "transformer_layer_config": {"hidden_size": 4096}, _IDS: ids}
    elif ids is not None:
        config["eagle_config"] = {_IDS: ids}
    return config


@st.composite
def malformed_draft_configs(draw: st.DrawFn) -> dict[str, Any]:
    """Return draft configs of which none may be read: wrong kinds of values, keys that disagree, unknown kinds."""
    config = draw(draft_configs())
    fault = draw(st.sampled_from(["kind", "ids", "section", "disagree"]))
    if fault == "kind":
        config.pop("speculators_model_type", None)
        config["architectures"] = draw(st.sampled_from([["PEagleDraftModel"], ["MedusaModel"], [], None, "Llama", [3]]))
    elif fault == "ids":
        wrong = st.sampled_from(["1, 2, 3", 7, [], [1.5], [True], [None], {"a": 1}])
        config["eagle_config"] = {_IDS: draw(wrong)}
    elif fault == "section":
        config["eagle_config"] = draw(st.sampled_from([[1, 2, 3], "ids", 3, True]))
    else:
        config |= {_IDS: [1, 2, 3], "eagle_config": {_IDS: [2, 3, 4]}}
    return config
