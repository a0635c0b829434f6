"""Targets: wrappers are loaded whole, a dtype is the weights', and what no draft can be measured on is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from harness.errors import InputError
from harness.models.target import load_target
from harness.pair.target_spec import read_target_spec
from harness.testing import WRAPPERS, tiny_target
from suites.support.architectures import config_of, write_pair_of
from suites.support.random_pair import random_ids, write_target


@pytest.mark.parametrize("architecture", WRAPPERS)
def test_a_multimodal_wrapper_is_loaded_and_its_text_model_captured(architecture: str, tmp_path: Path) -> None:
    model = cast(Any, tiny_target(architecture, layers=3))
    model.save_pretrained(tmp_path)
    spec = read_target_spec(tmp_path)
    assert (spec.architecture, spec.num_layers, spec.hidden_size) == (architecture, 3, 32)
    target = load_target(spec, dtype=torch.float32)
    ids = random_ids(1, 7)
    with target.capture((0, 2, 3)) as capture:
        logits = target.forward(ids)
    expected = model(ids, output_hidden_states=True)
    assert torch.equal(capture.state(2), expected.hidden_states[2])
    assert torch.allclose(logits, expected.logits, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@torch.inference_mode()
def test_a_target_in_half_precision_is_that_of_transformers(dtype: torch.dtype, tmp_path: Path) -> None:
    """With exact rotary frequencies: cast with the weights, they turn late positions by other angles."""
    write_target(tmp_path)
    target = load_target(read_target_spec(tmp_path), dtype=dtype)
    model = cast(Any, AutoModelForCausalLM.from_pretrained(tmp_path, dtype=dtype))
    ids = random_ids(1, 300)
    assert torch.equal(target.forward(ids), model(ids).logits)
    assert cast(Any, target.model).model.rotary_emb.inv_freq.dtype == torch.float32


def test_a_target_with_several_states_for_a_token_is_refused_by_name(tmp_path: Path) -> None:
    write_pair_of(config_of("gemma3n"), tmp_path)
    spec = read_target_spec(tmp_path / "target")
    with pytest.raises(
        InputError, match=r"blocks of Gemma3n\w+ do not pass on one hidden state .*2, 1, 12, 32.*--engine"
    ):
        load_target(spec, dtype=torch.float32)


def test_a_target_that_sees_what_follows_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault is FAKE; Doge in transformers 5.0 is such a target."""
    write_target(tmp_path)
    forward = LlamaForCausalLM.forward

    def seeing(model: Any, input_ids: Any, **options: Any) -> Any:
        output = forward(model, input_ids=input_ids, **options)
        output.logits = output.logits + output.logits.mean(1, keepdim=True)
        return output

    load_target(read_target_spec(tmp_path), dtype=torch.float32)
    monkeypatch.setattr(LlamaForCausalLM, "forward", seeing)
    with pytest.raises(InputError, match=r"LlamaForCausalLM computes other logits for a token if more tokens follow"):
        load_target(read_target_spec(tmp_path), dtype=torch.float32)


def test_states_are_of_all_positions_however_many_logits_are_kept(tmp_path: Path) -> None:
    config = config_of("gemma4-shared")
    if config is None:
        pytest.skip("this transformers does not know Gemma 4")
    write_pair_of(config, tmp_path)
    target = load_target(read_target_spec(tmp_path / "target"), dtype=torch.float32)
    ids = random_ids(2, 9)
    with target.capture((1, 4)) as capture:
        whole = target.forward(ids)
        states = capture.concatenated()
        last = target.forward(ids, keep=1)
        assert torch.allclose(capture.concatenated(), states, atol=1e-4)
    assert torch.allclose(last, whole[:, -1:], atol=1e-4)
