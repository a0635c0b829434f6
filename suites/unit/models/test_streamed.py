"""A model that computes in another dtype or with another kernel equals a copy that was cast, and is left as it was."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig, MixtralConfig

from harness.models.streamed import computing_in, other_attention

SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
}
CONFIGS = {
    "llama": LlamaConfig(**SMALL),
    # Experts' weights are parameters of one module, without a module for each.
    "mixtral": MixtralConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2),
    "tied": LlamaConfig(**SMALL, tie_word_embeddings=True),
}
IDS = torch.randint(0, 64, (2, 11), generator=torch.Generator().manual_seed(1))


def _model(name: str) -> Any:
    torch.manual_seed(3)
    return AutoModelForCausalLM.from_config(CONFIGS[name]).eval()


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@torch.inference_mode()
def test_it_computes_what_a_cast_copy_computes(name: str, dtype: torch.dtype) -> None:
    if (name, dtype) == ("mixtral", torch.float64):
        pytest.skip("torch does not multiply grouped matrices in float64")
    model = _model(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    plain = model(IDS).logits
    # A copy whose buffers stay: transformers computes rotary frequencies in float32 in any dtype.
    cast = copy.deepcopy(model)
    for parameter in cast.parameters():
        parameter.data = parameter.data.to(dtype)
    with computing_in(model, dtype) as possible:
        assert possible
        ours = model(IDS).logits
    assert ours.dtype == dtype
    torch.testing.assert_close(ours, cast(IDS).logits, rtol=0, atol=0)
    assert not torch.equal(ours.double(), plain.double())
    torch.testing.assert_close(model(IDS).logits, plain, rtol=0, atol=0)
    for key, value in model.state_dict().items():
        assert value.dtype == before[key].dtype
        assert torch.equal(value, before[key]), key


@torch.inference_mode()
def test_no_more_than_one_module_is_cast_at_a_time() -> None:
    model = _model("llama")
    most = 0

    def count(_module: nn.Module, _arguments: Any) -> None:
        nonlocal most
        most = max(most, sum(parameter.dtype == torch.bfloat16 for parameter in model.parameters()))

    with computing_in(model, torch.bfloat16):
        handles = [module.register_forward_pre_hook(count) for module in model.modules()]
        model(IDS)
        for handle in handles:
            handle.remove()
    assert most == 1


def test_a_forward_that_fails_leaves_the_weights_as_they_were() -> None:
    model = _model("llama")

    def broken(_module: nn.Module, _arguments: Any) -> None:
        raise RuntimeError("in the middle")

    handle = model.model.layers[1].mlp.act_fn.register_forward_pre_hook(broken)
    with computing_in(model, torch.bfloat16), pytest.raises(RuntimeError, match="in the middle"):
        model(IDS)
    handle.remove()
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_weights_in_eight_bits_are_left_alone() -> None:
    model = _model("llama")
    head = model.lm_head
    head.weight = nn.Parameter(head.weight.detach().to(torch.float8_e4m3fn), requires_grad=False)
    with computing_in(model, torch.bfloat16) as possible:
        assert not possible
    assert head.weight.dtype == torch.float8_e4m3fn


@torch.inference_mode()
def test_another_kernel_rounds_differently_and_is_switched_back() -> None:
    model = _model("llama").to(torch.bfloat16)
    assert model.config._attn_implementation == "sdpa"
    ids = IDS.repeat(1, 8)
    plain = model(ids).logits
    with other_attention(model) as kernel:
        assert kernel == "eager"
        ours = model(ids).logits
    assert not torch.equal(ours, plain)
    torch.testing.assert_close(ours, plain, rtol=0.1, atol=0.1)
    assert model.config._attn_implementation == "sdpa"
    torch.testing.assert_close(model(ids).logits, plain, rtol=0, atol=0)


def test_a_model_whose_kernel_has_no_counterpart() -> None:
    model = _model("llama")
    model.config._attn_implementation = "flash_attention_2"
    with other_attention(model) as kernel:
        assert kernel is None
