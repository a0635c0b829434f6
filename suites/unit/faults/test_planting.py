"""Each planted fault is the one that it is called, and leaves the pair as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from harness.commands.prepare import prepare
from harness.engines.reference.loaded import LoadedPair, load
from harness.faults import planting
from harness.models.capture import BoundaryCapture, decoder_blocks
from harness.models.chains import ParallelChains
from harness.models.draft import Eagle3Draft
from harness.models.tiny import TINY_SIZES, TINY_TARGETS, move_norms_off_one
from suites.support.random_pair import write_pair

LAYERS = 4
LATER_STEPS = (planting.stuck_positions, planting.recycled_post_norm, planting.recycled_pre_norm)
ROUNDED = ((planting.in_int8, 255), (planting.in_4_bits, 15))


@pytest.fixture(scope="module")
def tiny() -> LoadedPair:
    return load(prepare("tiny"))


def _one_step(loaded: LoadedPair) -> LoadedPair:
    """The pair with chains of one token, in which no step reads the draft's own output."""
    return load(loaded.pair.with_steps(1))


def _two_steps(draft: Eagle3Draft) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs of a draft's first two steps on random states."""
    torch.manual_seed(0)
    states = torch.randn(1, 6, draft.num_boundaries * draft.spec.target_hidden_size)
    tokens = torch.arange(6)[None] + 3
    chains = ParallelChains(draft, tokens, states)
    return chains.hidden, chains.step(tokens)


def test_the_embedding_has_no_residual_to_lose() -> None:
    loaded = load(prepare("tiny-embedding"))
    dropped = planting.dropped_residual(loaded)
    assert dropped is not None
    with dropped as outputs, loaded.target.capture((0, 2, 4)) as capture:
        loaded.target.forward(torch.tensor([[1, 2, 3]]))
    assert set(outputs) == {2, 4}
    assert (outputs[4] - capture.state(4)).abs().max() > 0.1


@pytest.mark.parametrize(
    "architecture",
    ["LlamaForCausalLM", "Olmo2ForCausalLM", "Gemma3ForCausalLM", "Qwen3MoeForCausalLM", "GptOssForCausalLM"],
)
def test_what_is_captured_without_its_residual_is_what_the_block_adds_last(architecture: str) -> None:
    """In families that norm the MLP's output too, and in those whose MLP also returns its routing."""
    model_type, sizes = TINY_TARGETS[architecture]
    config = AutoConfig.for_model(model_type, **{**TINY_SIZES, **sizes, "num_hidden_layers": LAYERS})
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    move_norms_off_one(model)
    target = SimpleNamespace(model=model, spec=SimpleNamespace(num_layers=LAYERS))
    pair = SimpleNamespace(boundaries=(0, 2, 3))
    dropped = planting.dropped_residual(cast(Any, SimpleNamespace(target=target, pair=pair)))
    assert dropped is not None
    ids = torch.tensor([[1, 2, 3, 4]])
    with dropped as outputs, BoundaryCapture(model, LAYERS, (3,)) as capture:
        model(ids)
        whole = capture.state(3)
        added = outputs[3]
    # The stream without the block's last addition: its MLP outputs nothing, whichever norms follow it.
    block = cast(Any, decoder_blocks(model, LAYERS)[2])

    def silence(_module: nn.Module, _inputs: object, output: Any) -> Any:
        return (torch.zeros_like(output[0]), *output[1:]) if isinstance(output, tuple) else torch.zeros_like(output)

    handle = block.mlp.register_forward_hook(silence)
    with BoundaryCapture(model, LAYERS, (3,)) as capture:
        model(ids)
        stream = capture.state(3)
    handle.remove()
    torch.testing.assert_close(stream + added, whole)
    assert added.abs().max() > 1e-4


def test_a_target_whose_blocks_have_no_mlp_cannot_lose_a_residual(tiny: LoadedPair) -> None:
    blocks = nn.ModuleList(nn.Identity() for _ in range(8))
    model = SimpleNamespace(get_decoder=lambda: SimpleNamespace(layers=blocks))
    target = SimpleNamespace(model=model, spec=SimpleNamespace(num_layers=8))
    assert planting.dropped_residual(cast(Any, SimpleNamespace(target=target, pair=tiny.pair))) is None
    assert planting.norm_on_last_slot(cast(Any, SimpleNamespace(target=target))) is None


def test_the_final_norm_is_applied_to_the_last_slot_alone(tiny: LoadedPair) -> None:
    change = planting.norm_on_last_slot(tiny)
    assert change is not None
    width = tiny.target.spec.hidden_size
    states = 3 * torch.randn(1, 5, 3 * width)
    changed = change(states)
    assert torch.equal(changed[..., : 2 * width], states[..., : 2 * width])
    norm = cast(Any, tiny.target.model).get_decoder().norm
    assert torch.equal(changed[..., 2 * width :], norm(states[..., 2 * width :]))


def test_stuck_positions_change_only_later_steps(tiny: LoadedPair) -> None:
    stuck = planting.stuck_positions(tiny)
    assert stuck is not None
    starts = torch.tensor([[3, 5]])
    assert torch.equal(tiny.draft.step_positions(starts, 2), starts + 2)
    assert torch.equal(stuck.step_positions(starts, 2), starts)
    (first, second), (right_first, right_second) = _two_steps(stuck), _two_steps(tiny.draft)
    assert torch.equal(first, right_first)
    assert not torch.allclose(second, right_second)


def test_what_steps_read_is_on_the_other_side_of_the_norm(tiny: LoadedPair) -> None:
    normed = planting.recycled_post_norm(tiny)
    assert normed is not None
    hidden = torch.randn(1, 2, tiny.draft.spec.hidden_size)
    assert torch.equal(normed.recycle(hidden), tiny.draft.norm(hidden))
    assert torch.equal(tiny.draft.recycle(hidden), hidden)
    assert planting.recycled_pre_norm(tiny) is None
    other = replace(tiny, draft=normed)
    assert planting.recycled_post_norm(other) is None
    back = planting.recycled_pre_norm(other)
    assert back is not None
    assert torch.equal(back.recycle(hidden), hidden)


def test_an_ignored_map_leaves_draft_ids_as_they_are(tiny: LoadedPair) -> None:
    unmapped = planting.ignored_map(tiny)
    assert unmapped is not None
    ids = torch.arange(8)
    assert torch.equal(unmapped.to_target(ids), ids)
    assert not torch.equal(tiny.draft.to_target(ids), ids)
    assert planting.ignored_map(replace(tiny, draft=unmapped)) is None


@pytest.mark.parametrize(
    "plant",
    [planting.stuck_positions, planting.recycled_post_norm, planting.recycled_pre_norm],
    ids=lambda one: one.__name__,
)
def test_a_chain_of_one_token_has_no_step_that_could_be_wrong(
    plant: Callable[[LoadedPair], Eagle3Draft | None], tiny: LoadedPair
) -> None:
    assert plant(_one_step(tiny)) is None


@pytest.mark.parametrize(
    "plant",
    [planting.stuck_positions, planting.recycled_post_norm, planting.ignored_map],
    ids=lambda one: one.__name__,
)
def test_a_planted_draft_shares_the_weights_and_leaves_the_right_one(
    plant: Callable[[LoadedPair], Eagle3Draft | None], tiny: LoadedPair
) -> None:
    before = {name: tensor.clone() for name, tensor in tiny.draft.state_dict().items()}
    draft = plant(tiny)
    assert draft is not None
    assert draft.lm_head.weight.data_ptr() == tiny.draft.lm_head.weight.data_ptr()
    assert torch.equal(draft.rotary.inv_freq, tiny.draft.rotary.inv_freq)
    assert (draft.dtype, draft.training) == (tiny.draft.dtype, False)
    assert all(torch.equal(tensor, before[name]) for name, tensor in tiny.draft.state_dict().items())


def test_a_target_in_its_own_numbers_is_not_tried(tiny: LoadedPair) -> None:
    target = planting.in_bfloat16(tiny)
    assert target is not None
    assert target.dtype == torch.bfloat16
    assert tiny.target.dtype == torch.float32
    assert planting.in_bfloat16(replace(tiny, target=target)) is None


@pytest.mark.parametrize(
    ("plant", "levels"), [(planting.in_int8, 255), (planting.in_4_bits, 15)], ids=["int8", "4 bits"]
)
def test_a_rounded_target_has_as_many_levels_as_bits_allow(
    plant: Callable[[LoadedPair], Any], levels: int, tiny: LoadedPair
) -> None:
    target = plant(tiny)
    (name, weight), *_ = [
        (name, tensor) for name, tensor in target.model.named_parameters() if name.endswith("q_proj.weight")
    ]
    right = dict(tiny.target.model.named_parameters())[name]
    assert not torch.equal(weight, right)
    row = weight[0, :32]
    assert 1 < len(row.unique()) <= levels
    assert (row - right[0, :32]).abs().max() <= right[0].abs().max() / (levels // 2)


def test_inputs_that_no_scale_covers_are_not_rounded_to_4_bits(tmp_path: Path) -> None:
    """Rather than one scale across two outputs."""
    assert planting.in_4_bits(load(prepare(write_pair(tmp_path)))) is None
