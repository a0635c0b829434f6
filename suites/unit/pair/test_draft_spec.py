"""The same draft under every kind of config that can be run: the same counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch

from harness.commands.measure import measure
from harness.commands.prepare import prepare
from harness.pair.draft_spec import read_draft_spec
from suites.support.random_pair import write_pair

KEY = "eagle_aux_hidden_state_layer_ids"
Rewrite = Callable[[dict[str, Any]], dict[str, Any]]


def _eagle(config: dict[str, Any]) -> dict[str, Any]:
    return config | {"architectures": ["LlamaForCausalLM"]}


def _angelslim(config: dict[str, Any]) -> dict[str, Any]:
    """AngelSlim copies the target's tie_word_embeddings, although its head has a vocabulary of its own."""
    return config | {
        "architectures": ["Eagle3LlamaForCausalLM"],
        "target_model_type": "llama",
        "tie_word_embeddings": True,
    }


def _speculators(config: dict[str, Any]) -> dict[str, Any]:
    own = ("draft_vocab_size", "eagle_config", "architectures", "target_hidden_size")
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": config["draft_vocab_size"],
        KEY: config["eagle_config"][KEY],
        "transformer_layer_config": {name: value for name, value in config.items() if name not in own},
    }


def _rewrite(file: Path, rewrite: Rewrite) -> None:
    config = file.parent / "draft/config.json"
    config.write_text(json.dumps(rewrite(json.loads(config.read_text()))))


def _histograms(file: Path) -> list[tuple[int, ...]]:
    return [record.histogram for record in measure(prepare(file)).run.records]


@pytest.mark.parametrize("rewrite", [_eagle, _angelslim, _speculators])
def test_a_draft_is_the_same_under_every_kind_of_config(rewrite: Rewrite, tmp_path: Path) -> None:
    file = write_pair(tmp_path)
    before = _histograms(file)
    _rewrite(file, rewrite)
    assert _histograms(file) == before


def test_tensors_named_as_speculators_names_them(tmp_path: Path) -> None:
    file = write_pair(tmp_path)
    before = _histograms(file)
    _rewrite(file, _speculators)
    weights = tmp_path / "draft/model.safetensors"
    tensors = {
        name.replace("midlayer.", "layers.0."): tensor for name, tensor in safetensors.torch.load_file(weights).items()
    }
    safetensors.torch.save_file(tensors, weights, metadata={"format": "pt"})
    assert any(name.startswith("layers.0.") for name in tensors)
    assert _histograms(file) == before


def test_ids_at_the_top_are_found_and_their_key_named(tmp_path: Path) -> None:
    file = write_pair(tmp_path)
    _rewrite(file, _speculators)
    spec = read_draft_spec(tmp_path / "draft")
    assert (spec.layers.ids, spec.ids_key) == ((-1, 1, 3), KEY)
    assert "5 flags are absent" in str(spec.flags.absence)
    assert "speculators==0.4 takes it" in str(spec.flags.absence)
