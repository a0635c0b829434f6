"""The boundaries captured and concatenated are those asked for, on every architecture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache

from harness.models.capture import BoundaryCapture
from harness.models.target import Target
from harness.pair.target_spec import TargetSpec
from harness.testing import ARCHITECTURES, WRAPPERS, LayerCase, layer_cases, tiny_target
from suites.contract import properties
from suites.contract.properties import capture, ids_of

LAYERS = 5


def _every(architecture: str) -> LayerCase:
    return LayerCase(architecture, LAYERS, tuple(range(LAYERS + 1)))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_boundary_of_every_architecture(architecture: str) -> None:
    case = _every(architecture)
    properties.width(capture, case)
    properties.content(capture, case)
    properties.final_norm(capture, case)


@pytest.mark.parametrize("architecture", WRAPPERS)
def test_the_text_model_of_a_multimodal_wrapper_is_the_one_captured(architecture: str) -> None:
    """Its vision tower has two blocks and another width."""
    case = _every(architecture)
    properties.width(capture, case)
    properties.content(capture, case)
    properties.final_norm(capture, case)


@given(case=layer_cases())
def test_the_concatenation_is_what_was_asked_for(case: LayerCase) -> None:
    properties.width(capture, case)
    properties.content(capture, case)
    properties.final_norm(capture, case)
    properties.order_and_repeats(capture, case)


def _close(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, atol=2e-4, rtol=2e-4)


@torch.no_grad()
def _in_chunks(case: LayerCase, ids: Tensor, cuts: list[int]) -> Tensor:
    """Capture a prompt that the model reads in pieces, with a cache."""
    model: Any = tiny_target(case.architecture, layers=case.num_layers)
    config = model.config
    spec = TargetSpec(
        Path(), case.architecture, case.num_layers, config.hidden_size, config.vocab_size, ids.shape[1], eos_ids=()
    )
    target = Target(model, spec)
    cache, parts = DynamicCache(config=config), []
    with target.capture(case.boundaries) as captured:
        for start, end in zip([0, *cuts], [*cuts, ids.shape[1]], strict=True):
            target.forward(ids[:, start:end], cache=cache)
            parts.append(captured.concatenated())
    return torch.cat(parts, dim=1)


@given(case=layer_cases(most_layers=4), cut=st.integers(1, 8))
def test_a_prompt_in_chunks_is_the_prompt(case: LayerCase, cut: int) -> None:
    model, ids = tiny_target(case.architecture, layers=case.num_layers), ids_of()
    assert _close(_in_chunks(case, ids, [cut]), capture(model, ids, case.boundaries))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_cache_continued_token_by_token_is_the_text_recomputed(architecture: str) -> None:
    case = _every(architecture)
    model, ids = tiny_target(architecture, layers=LAYERS), ids_of(length=12)
    continued = _in_chunks(case, ids, list(range(6, 12)))
    assert _close(continued, capture(model, ids, case.boundaries))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.no_grad()
def test_ragged_prompts_together_are_the_prompts_one_by_one(architecture: str, side: str) -> None:
    boundaries = tuple(range(LAYERS + 1))
    model: Any = tiny_target(architecture, layers=LAYERS)
    prompts = [ids_of(seed, 1, length) for seed, length in ((1, 9), (2, 4), (3, 6))]
    longest = 9
    ids = torch.zeros(3, longest, dtype=torch.int64)
    mask = torch.zeros(3, longest, dtype=torch.int64)
    for row, prompt in enumerate(prompts):
        where = slice(longest - prompt.shape[1], longest) if side == "left" else slice(0, prompt.shape[1])
        ids[row, where], mask[row, where] = prompt[0], 1
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with BoundaryCapture(model, LAYERS, boundaries) as captured:
        model(ids, attention_mask=mask, position_ids=positions)
        together = captured.concatenated()
    for row, prompt in enumerate(prompts):
        assert _close(together[row][mask[row].bool()], capture(model, prompt, boundaries)[0]), row


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_states_keep_the_models_dtype_and_survive_a_round_trip(dtype: torch.dtype) -> None:
    model = tiny_target("LlamaForCausalLM", layers=3, dtype=dtype)
    found = capture(model, ids_of(), (0, 2, 3))
    assert found.dtype == dtype
    assert torch.equal(found.to(torch.float64).to(dtype), found)


class _Sharded(nn.Module):
    """A linear layer split over two devices by its input, as tensor parallelism splits `o_proj` and `down_proj`."""

    def __init__(self, whole: nn.Linear, *, reduced: bool) -> None:
        super().__init__()
        self.whole, self.reduced = whole, reduced

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum over devices; only the first device's part if it is not reduced."""
        half = x.shape[-1] // 2
        parts = [nn.functional.linear(x[..., :half], self.whole.weight[:, :half], self.whole.bias)]
        if self.reduced:
            parts.append(nn.functional.linear(x[..., half:], self.whole.weight[:, half:]))
        return torch.stack(parts).sum(0)


@pytest.mark.parametrize("reduced", [True, False], ids=["after the reduction", "before it"])
@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Qwen3ForCausalLM", "Olmo2ForCausalLM"])
def test_sharding_changes_nothing_after_the_reduction_and_is_caught_before_it(architecture: str, reduced: bool) -> None:
    boundaries = tuple(range(LAYERS + 1))
    # Another seed, since this model is changed and all other tests share the one of seed 0.
    model: Any = tiny_target(architecture, layers=LAYERS, seed=7 if reduced else 8)
    whole = capture(model, ids_of(), boundaries)
    for block in model.get_decoder().layers:
        for owner, name in ((block.self_attn, "o_proj"), (block.mlp, "down_proj")):
            layer = getattr(owner, name)
            setattr(owner, name, _Sharded(layer.whole if isinstance(layer, _Sharded) else layer, reduced=reduced))
    assert _close(capture(model, ids_of(), boundaries), whole) is reduced
