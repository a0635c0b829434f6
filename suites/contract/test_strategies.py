"""The public strategies give what they say."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import InputError
from harness.facts.conventions import read_ids
from harness.pair.layer_config import read_layer_config
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


def _read(config: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.json"
        file.write_text(json.dumps(config))
        read_layer_config(file)


@given(config=draft_configs())
def test_draft_configs_are_read(config: dict[str, Any]) -> None:
    _read(config)


@given(config=malformed_draft_configs())
def test_malformed_ones_are_refused_in_one_paragraph(config: dict[str, Any]) -> None:
    with pytest.raises(InputError) as error:
        _read(config)
    assert "\n" not in str(error.value)
