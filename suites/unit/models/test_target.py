"""Targets: multimodal wrappers are loaded whole; a dtype is that of the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from transformers import AutoModelForCausalLM

from harness.models.target import load_target
from harness.pair.target_spec import read_target_spec
from harness.testing import WRAPPERS, tiny_target
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
