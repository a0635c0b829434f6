"""Tiny targets of real architectures, and hypothesis strategies over layer ids and draft configs, for your own tests.

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
from harness.facts.flags import FLAGS
from harness.facts.keys import EAGLE_SECTION, IDS_KEY
from harness.facts.layer_ids import write_ids
from harness.models.target import auto_class
from harness.models.tiny import TINY_SIZES, TINY_TARGETS, move_norms_off_one
from harness.pair.quiet import quiet

__all__ = [
    "ARCHITECTURES",
    "WRAPPERS",
    "LayerCase",
    "architectures",
    "boundary_lists",
    "draft_configs",
    "layer_cases",
    "layer_ids",
    "malformed_draft_configs",
    "tiny_config",
    "tiny_target",
]

ARCHITECTURES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    name: TINY_TARGETS[name]
    for name in (
        "LlamaForCausalLM",
        "MistralForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
        "DeepseekV3ForCausalLM",
        "GptOssForCausalLM",
        "Glm4MoeForCausalLM",
        "Gemma3ForCausalLM",
        "Phi3ForCausalLM",
        "Olmo2ForCausalLM",
        "SmolLM3ForCausalLM",
    )
}
"""By architecture: transformers' model type, and what its tiny config adds to the common sizes."""


_VISION: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}

WRAPPERS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "Mistral3ForConditionalGeneration": ("mistral3", "MistralForCausalLM", {"model_type": "pixtral", "head_dim": 8}),
    "LlavaForConditionalGeneration": ("llava", "LlamaForCausalLM", {"model_type": "clip_vision_model"}),
    "Gemma3ForConditionalGeneration": ("gemma3", "Gemma3ForCausalLM", {"model_type": "siglip_vision_model"}),
}
"""Multimodal wrappers: transformers' model type, the text model they wrap, and what their vision config adds."""


def tiny_config(architecture: str, *, layers: int = 5) -> Any:
    """Return transformers' config of a tiny target.

    Args:
        architecture: One of `ARCHITECTURES` or `WRAPPERS`.
        layers: Decoder blocks, N; a wrapper's vision tower has two, whatever N is.
    """
    from transformers import AutoConfig

    with quiet():
        if architecture in WRAPPERS:
            kind, text, vision = WRAPPERS[architecture]
            return AutoConfig.for_model(
                kind, text_config=tiny_config(text, layers=layers).to_dict(), vision_config={**_VISION, **vision}
            )
        kind, extra = ARCHITECTURES[architecture]
        return AutoConfig.for_model(
            kind, num_hidden_layers=layers, architectures=[architecture], **{**TINY_SIZES, **extra}
        )


@functools.lru_cache(maxsize=128)
def tiny_target(architecture: str, *, layers: int = 5, dtype: torch.dtype = torch.float32, seed: int = 0) -> nn.Module:
    """Return a transformers causal language model of random weights, norm weights off one, in evaluation mode.

    One model is made for each set of arguments and shared: do not change it.

    Args:
        architecture: One of `ARCHITECTURES` or `WRAPPERS`.
        layers: Decoder blocks, N.
        dtype: The weights' floating-point type.
        seed: The seed that the weights are drawn from.
    """
    with quiet():
        config = tiny_config(architecture, layers=layers)
        generator = torch.random.get_rng_state()
        torch.manual_seed(seed)
        model: nn.Module = auto_class(config).from_config(config, trust_remote_code=False)
        move_norms_off_one(model)
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
    """Return layer ids that are valid in a convention, such as `sglang==0.5.23`, for a target."""
    boundaries = draw(boundary_lists(num_layers))
    for candidate in (boundaries, tuple(sorted(set(boundaries))), (1,), (2,)):
        try:
            return write_ids(candidate, convention, num_layers=num_layers, architecture=architecture).ids
        except InputError:
            # The convention cannot express the order, repeats or an end of the range: fall back on what it can.
            continue
    raise AssertionError(f"{convention} can say no boundary of {num_layers} layers")


_LLAMA_SIZES: dict[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 1,
    "vocab_size": 128256,
}
_MLA_SIZES: dict[str, Any] = {
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "num_hidden_layers": 1,
    "vocab_size": 163840,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
_KINDS = (
    "LlamaForCausalLMEagle3",
    "Eagle3DeepseekV2ForCausalLM",
    "Eagle3LlamaForCausalLM",
    "LlamaForCausalLM",
    "Eagle3Speculator",
)


@st.composite
def draft_configs(draw: st.DrawFn) -> dict[str, Any]:
    """Return a draft's whole `config.json`, of every public kind that is an EAGLE-3 draft, at true size.

    Any flag may be there, under `eagle_config` or at the top, under its own name or an older one; no two disagree.
    """
    kind = draw(st.sampled_from(_KINDS))
    sizes = _MLA_SIZES if kind == "Eagle3DeepseekV2ForCausalLM" else _LLAMA_SIZES
    ids = draw(st.none() | st.lists(st.integers(-1, 60), min_size=3, max_size=3))
    config: dict[str, Any] = {"architectures": [kind], "draft_vocab_size": 32000}
    nested: dict[str, Any] = {}
    if kind == "Eagle3Speculator":
        config |= {"speculators_model_type": "eagle3", "transformer_layer_config": dict(sizes), IDS_KEY: ids}
    else:
        config |= sizes
        if ids is not None:
            nested[IDS_KEY] = ids
    switched_on = draw(st.lists(st.sampled_from([*FLAGS]), unique=True))
    for flag in (FLAGS[name] for name in switched_on):
        if flag.name == "fc_norm" and "norm_before_fc" in switched_on:
            continue
        where = draw(st.sampled_from([config, nested]))
        where[draw(st.sampled_from([flag.name, flag.legacy or flag.name]))] = draw(st.booleans())
    if nested:
        config[EAGLE_SECTION] = nested
    return config


@st.composite
def malformed_draft_configs(draw: st.DrawFn) -> dict[str, Any]:
    """Return draft configs that must all be refused: wrong kinds of values, keys that disagree, unknown kinds."""
    config = draw(draft_configs())
    fault = draw(st.sampled_from(["kind", "ids", "section", "disagree", "flag", "flags"]))
    if fault == "kind":
        config.pop("speculators_model_type", None)
        config["architectures"] = draw(st.sampled_from([["PEagleDraftModel"], ["MedusaModel"], [], None, "Llama", [3]]))
    elif fault == "ids":
        wrong = st.sampled_from(["1, 2, 3", 7, [], [1.5], [True], [None], {"a": 1}])
        config[EAGLE_SECTION] = {IDS_KEY: draw(wrong)}
    elif fault == "flag":
        config[EAGLE_SECTION] = {draw(st.sampled_from([*FLAGS])): draw(st.sampled_from(["true", 1, 0.0, [], {}]))}
    elif fault == "flags":
        config |= {"norm_output": True, EAGLE_SECTION: {"norm_output": False}}
    elif fault == "section":
        config[EAGLE_SECTION] = draw(st.sampled_from([[1, 2, 3], "ids", 3, True]))
    else:
        config |= {IDS_KEY: [1, 2, 3], EAGLE_SECTION: {IDS_KEY: [2, 3, 4]}}
    return config
