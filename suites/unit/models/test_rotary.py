"""Rope keys: each is read, or refused by name; the frequencies stay exact in a draft of any dtype."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from harness.errors import InputError
from harness.models.draft_weights import load_draft
from harness.models.precision import DTYPES
from harness.models.rotary import Rotary
from harness.pair.draft_spec import read_draft_spec
from suites.support.random_pair import VOCAB, WIDTH, write_draft

_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
_ORIGINAL = "original_max_position_embeddings"


def _rotary(folder: Path, **changes: Any) -> Rotary:
    write_draft(folder, **changes)
    return Rotary(read_draft_spec(folder))


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_frequencies_are_not_rounded_with_the_weights(dtype: str, tmp_path: Path) -> None:
    exact = _rotary(tmp_path)
    embedding = torch.zeros(VOCAB, WIDTH)
    draft = load_draft(read_draft_spec(tmp_path), num_boundaries=3, target_embedding=embedding, dtype=DTYPES[dtype])
    assert draft.dtype == DTYPES[dtype]
    for one in (draft, draft.to(torch.float16), draft.half().double()):
        assert one.rotary.inv_freq.dtype == torch.float32
        assert torch.equal(one.rotary.inv_freq, exact.inv_freq)
    position = torch.tensor([4000])
    cos, _ = draft.to(DTYPES[dtype]).rotary.table(position, DTYPES[dtype])
    expected, _ = exact.table(position, torch.float64)
    # Half a unit in the last place of values up to 1, and float32's own error of an angle of 4,000.
    assert (cos.double() - expected).abs().max() <= torch.finfo(DTYPES[dtype]).eps / 4 + 4000 * 2**-24


def test_weights_of_float64_keep_their_digits(tmp_path: Path) -> None:
    write_draft(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    weight = tensors["fc.weight"].double()
    weight[0, 0] = 1 + 2**-40
    tensors["fc.weight"] = weight
    safetensors.torch.save_file(tensors, file)
    draft = load_draft(
        read_draft_spec(tmp_path), num_boundaries=3, target_embedding=torch.zeros(VOCAB, WIDTH), dtype=torch.float64
    )
    assert draft.fc.weight[0, 0].item() == 1 + 2**-40


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"rope_scaling": _YARN}, {"rope_scaling": None, "rope_parameters": {**_YARN, "rope_theta": 10000.0}}),
        ({"rope_scaling": {**_YARN, "rope_type": "yarn"}}, {"rope_scaling": _YARN}),
        ({"rope_scaling": _YARN}, {"rope_scaling": _YARN, "rope_parameters": {**_YARN, "rope_theta": 10000.0}}),
        (
            {"rope_scaling": {**_LLAMA3, _ORIGINAL: 512}},
            {"rope_scaling": _LLAMA3, _ORIGINAL: 512},
        ),
        ({"rope_theta": 5e5}, {"rope_theta": None, "rope_parameters": {"rope_theta": 5e5}}),
        ({}, {"rope_scaling": {"type": "mrope", "mrope_section": [2, 2, 2]}}),
        ({}, {"partial_rotary_factor": 1.0, "rope_is_neox_style": True, _ORIGINAL: 64}),
        ({"rope_scaling": _YARN}, {"rope_scaling": {**_YARN, "attn_factor": 1, "finetuned": True}}),
    ],
)
def test_keys_that_mean_the_same(one: dict[str, Any], other: dict[str, Any], tmp_path: Path) -> None:
    first, second = _rotary(tmp_path / "one", **one), _rotary(tmp_path / "other", **other)
    assert torch.equal(first.inv_freq, second.inv_freq)
    assert first.scaling == second.scaling


@pytest.mark.parametrize(
    ("plain", "key", "value"),
    [
        ({}, "rope_theta", 5e5),
        ({"rope_scaling": _LLAMA3}, _ORIGINAL, 16),
        *(({"rope_scaling": _YARN}, f"rope_scaling.{key}", value) for key, value in (
            ("factor", 8.0), (_ORIGINAL, 16), ("beta_fast", 16), ("beta_slow", 4), ("attention_factor", 2.0),
            ("truncate", False),
        )),
        *(({"rope_scaling": {**_LLAMA3, _ORIGINAL: 512}}, f"rope_scaling.{key}", value) for key, value in (
            ("factor", 4.0), (_ORIGINAL, 256), ("low_freq_factor", 2.0), ("high_freq_factor", 8.0)
        )),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling.factor", 4.0),
    ],
)  # fmt: skip
def test_every_key_that_is_read_counts(plain: dict[str, Any], key: str, value: Any, tmp_path: Path) -> None:
    section, _, name = key.rpartition(".")
    changes = {**plain, key: value} if not section else {**plain, section: {**plain[section], name: value}}
    one, other = _rotary(tmp_path / "one", **plain), _rotary(tmp_path / "other", **changes)
    assert not torch.equal(one.inv_freq, other.inv_freq) or one.scaling != other.scaling


@pytest.mark.parametrize(
    ("changes", "key", "found"),
    [
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor", "0.5"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor", "0.5"),
        ({"rope_is_neox_style": False}, "rope_is_neox_style", "False"),
        ({"rope_scaling": {**_YARN, "attn_factor": 2.0}}, "rope_scaling.attn_factor", "2.0"),
        ({"rope_scaling": {**_YARN, "extrapolation_factor": 0.5}}, "rope_scaling.extrapolation_factor", "0.5"),
        ({"rope_scaling": {**_YARN, "short_factor": [1.0]}}, "rope_scaling.short_factor", "[1.0]"),
        ({"rope_scaling": {**_YARN, "mscale": 1.0}}, "rope_scaling.mscale", "1.0"),
        ({"rope_scaling": {**_YARN, "mscale_all_dim": 1.0}}, "rope_scaling.mscale_all_dim", "1.0"),
        ({"rope_scaling": {"factor": 8.0}}, "rope_scaling.rope_type", "no type next to factor"),
        ({"rope_scaling": {"type": "default", "factor": 8.0}}, "rope_scaling.factor", "8.0"),
        ({"rope_scaling": {"type": "linear", "rope_type": "yarn", "factor": 8.0}}, "rope_scaling.type", "linear"),
        ({"rope_scaling": _YARN, "rope_parameters": {**_YARN, "factor": 8.0}}, "rope_parameters and", "8.0"),
        ({"rope_scaling": _YARN, "rope_parameters": {"rope_type": "default"}}, "rope_parameters and", "default"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, "rope_theta and", "10000.0 and 500000.0"),
        ({"rope_scaling": _YARN, _ORIGINAL: 1024}, f"{_ORIGINAL} and", "1024 and 512"),
        ({"rope_scaling": "yarn"}, "rope_scaling", "'yarn'"),
    ],
)  # fmt: skip
def test_a_key_that_would_be_read_past_is_refused(
    changes: dict[str, Any], key: str, found: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=re.escape(found)) as caught:
        _rotary(tmp_path, **changes)
    assert key in str(caught.value)
    assert "config.json" in str(caught.value)
    assert "expected" in str(caught.value)


def test_yarn_scales_cos_and_sin(tmp_path: Path) -> None:
    """By 0.1 ln(factor) + 1 (Peng et al., YaRN, 2023, equation 22); by the ratio of both mscales if they are given."""
    assert _rotary(tmp_path / "plain", rope_scaling=_YARN).scaling == pytest.approx(0.1 * math.log(4.0) + 1)
    both = _rotary(tmp_path / "both", rope_scaling={**_YARN, "mscale": 1.0, "mscale_all_dim": 0.5})
    assert both.scaling == pytest.approx((0.1 * math.log(4.0) + 1) / (0.05 * math.log(4.0) + 1))
