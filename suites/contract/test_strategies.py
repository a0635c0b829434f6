"""The public strategies generate what they promise."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import InputError
from harness.facts.layer_ids import read_ids
from harness.models.draft_contract import expected_tensors
from harness.pair.draft_spec import DraftSpec, read_draft_spec
from harness.testing import draft_configs, layer_ids, malformed_draft_configs

CONVENTIONS = [
    "boundary",
    "eagle",
    "specforge",
    "sglang==0.5.23",
    "sglang==0.5.12",
    "sglang-sentinel",
    "speculators==0.3",
]


@given(data=st.data(), convention=st.sampled_from(CONVENTIONS), layers=st.integers(4, 61))
def test_ids_of_a_convention_are_read_without_loss(data: st.DataObject, convention: str, layers: int) -> None:
    ids = data.draw(layer_ids(convention, num_layers=layers))
    reading = read_ids(ids, convention, num_layers=layers, architecture="LlamaForCausalLM")
    assert not reading.lost
    assert len(reading.boundaries) == len(ids)


def _read(config: dict[str, Any]) -> DraftSpec:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        return read_draft_spec(Path(folder))


@given(config=draft_configs(), slots=st.integers(1, 4))
def test_draft_configs_are_read_and_their_widths_known_without_weights(config: dict[str, Any], slots: int) -> None:
    spec = _read(config)
    shapes = {name: tuple(tensor.shape) for name, tensor in expected_tensors(spec, slots).items()}
    width = spec.hidden_size
    if spec.use_aux_hidden_state:
        assert shapes["fc.weight"] == (width, slots * width)
    else:
        assert "fc.weight" not in shapes
    assert [name for name in shapes if name.startswith("fc_norm")] == [
        f"fc_norm.{slot}.weight" for slot in range(slots if spec.fc_norm else 0)
    ]
    assert (shapes.get("input_norm.weight") == (slots * width,)) is spec.norm_before_fc
    first = "q_proj" if spec.mla is None else "q_a_proj"
    assert shapes[f"midlayer.self_attn.{first}.weight"][1] == 2 * width
    assert shapes["lm_head.weight"] == (32000, width)


@given(config=malformed_draft_configs())
def test_malformed_ones_are_refused_in_one_paragraph(config: dict[str, Any]) -> None:
    with pytest.raises(InputError) as error:
        _read(config)
    assert "\n" not in str(error.value)
