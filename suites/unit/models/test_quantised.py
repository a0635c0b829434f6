"""Quantised checkpoints: those on the list are read exactly, the others are refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, GptOssConfig, LlamaConfig, PreTrainedModel

from harness.errors import InputError
from harness.models.draft_weights import load_draft
from harness.models.target import load_target
from harness.pair.draft_spec import read_draft_spec
from harness.pair.target_spec import read_target_spec
from suites.support.random_pair import VOCAB, WIDTH, write_draft, write_target

_BLOCK = 128
# The values of four bits: a sign, two bits of exponent, one of mantissa (OCP Microscaling Formats, 1.0, section 5.3.3).
_FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def _write(folder: Path, config: Any) -> dict[str, Tensor]:
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    # Copies: the file is written over.
    return {name: tensor.clone() for name, tensor in safetensors.torch.load_file(folder / "model.safetensors").items()}


def _finish(folder: Path, tensors: dict[str, Tensor], quantisation: dict[str, Any]) -> None:
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "quantization_config": quantisation}))


def _fp8(folder: Path) -> dict[str, Tensor]:
    """Write a LLaMA in FP8 with a scale for each block; return the weights that its numbers stand for."""
    sizes: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "vocab_size": 64}
    tensors = _write(folder, LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2))
    meant = dict(tensors)
    for name, weight in list(tensors.items()):
        if not name.endswith("_proj.weight"):
            continue
        blocks = weight.unflatten(1, (-1, _BLOCK)).unflatten(0, (-1, _BLOCK))
        scale = blocks.abs().amax((1, 3)) / 448
        tensors[name] = (blocks / scale[:, None, :, None]).reshape(weight.shape).to(torch.float8_e4m3fn)
        tensors[f"{name}_scale_inv"] = scale
        again = tensors[name].float().unflatten(1, (-1, _BLOCK)).unflatten(0, (-1, _BLOCK))
        meant[name] = (again * scale[:, None, :, None]).reshape(weight.shape)
    quantisation = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [_BLOCK, _BLOCK]}
    _finish(folder, tensors, quantisation)
    return meant


def _mxfp4(folder: Path) -> dict[str, Tensor]:
    """Write a gpt-oss whose experts have four bits and a scale for each 32; return the weights that they stand for."""
    sizes: dict[str, Any] = {
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "vocab_size": 64,
        "head_dim": 16,
    }
    config = GptOssConfig(**sizes, num_attention_heads=4, num_key_value_heads=2, num_local_experts=4)
    tensors = _write(folder, config)
    meant = dict(tensors)
    generator = torch.Generator().manual_seed(5)
    for name, weight in list(tensors.items()):
        if not name.endswith(("gate_up_proj", "down_proj")):
            continue
        experts, inputs, outputs = weight.shape
        shape = (experts, outputs, inputs // 32)
        nibbles = torch.randint(0, 16, (*shape, 32), generator=generator, dtype=torch.uint8)
        scales = torch.randint(118, 124, shape, generator=generator, dtype=torch.uint8)
        del tensors[name]
        tensors[f"{name}_blocks"] = nibbles[..., ::2] | (nibbles[..., 1::2] << 4)
        tensors[f"{name}_scales"] = scales
        values = _FP4[(nibbles & 7).long()] * torch.where(nibbles > 7, -1.0, 1.0)
        values = values * torch.exp2(scales.float() - 127)[..., None]
        meant[name] = values.flatten(-2).transpose(1, 2)
    _finish(folder, tensors, {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head", "model.embed_tokens"]})
    return meant


# torch does not multiply the experts' grouped matrices in float64.
@pytest.mark.parametrize(
    ("write", "dtype"),
    [
        (_fp8, torch.float64),
        (_fp8, torch.float32),
        (_fp8, torch.bfloat16),
        (_mxfp4, torch.float32),
        (_mxfp4, torch.bfloat16),
    ],
)
def test_a_known_kind_is_read_exactly(
    write: Callable[[Path], dict[str, Tensor]], dtype: torch.dtype, tmp_path: Path
) -> None:
    meant = write(tmp_path)
    state = load_target(read_target_spec(tmp_path), dtype=dtype).model.state_dict()
    assert state.keys() == meant.keys()
    # transformers dequantises in bfloat16 at least, and casts what comes of it.
    tolerance = 0.0 if dtype != torch.bfloat16 else torch.finfo(dtype).eps
    for name, weight in meant.items():
        assert state[name].dtype == dtype
        torch.testing.assert_close(state[name].double(), weight.double(), rtol=tolerance, atol=0)


@pytest.mark.parametrize(
    ("write", "name"), [(_fp8, "up_proj.weight"), (_fp8, "lm_head.weight"), (_mxfp4, "gate_up_proj")]
)
def test_a_release_that_passes_the_scales_over_is_refused(
    write: Callable[[Path], dict[str, Tensor]], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release is FAKE: a loader of which some weights are off by a factor of two."""
    write(tmp_path)
    load = PreTrainedModel.from_pretrained.__func__  # type: ignore[attr-defined]

    def off(cls: Any, *arguments: Any, **options: Any) -> Any:
        model, info = load(cls, *arguments, **options)
        for key, parameter in model.named_parameters():
            if key.endswith(name):
                parameter.data *= 2
        return model, info

    load_target(read_target_spec(tmp_path), dtype=torch.float32)
    monkeypatch.setattr(PreTrainedModel, "from_pretrained", classmethod(off))
    with pytest.raises(InputError, match=rf"does not dequantise this checkpoint exactly.*{name}"):
        load_target(read_target_spec(tmp_path), dtype=torch.float32)


@pytest.mark.parametrize("method", ["gptq", "awq", "compressed-tensors", "bitsandbytes", "one that is not known"])
def test_another_kind_is_refused_by_name(method: str, tmp_path: Path) -> None:
    write_target(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "quantization_config": {"quant_method": method}}))
    with pytest.raises(InputError, match=rf"quant_method.*found {method}, expected fp8 or mxfp4") as caught:
        load_target(read_target_spec(tmp_path), dtype=torch.float32)
    assert "--engine sglang" in str(caught.value)


def test_a_quantised_draft_is_refused(tmp_path: Path) -> None:
    write_draft(tmp_path, quantization_config={"quant_method": "fp8"})
    with pytest.raises(InputError, match=r"does not run quantised drafts.*found fp8"):
        load_draft(
            read_draft_spec(tmp_path),
            num_boundaries=3,
            target_embedding=torch.zeros(VOCAB, WIDTH),
            dtype=torch.float32,
        )
