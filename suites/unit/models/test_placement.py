"""Placement: a target that accelerate spreads or offloads computes what a plain one computes, and says where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from harness.commands.measure import measure
from harness.commands.prepare import prepare
from harness.errors import InputError
from harness.models.placement import Placement
from harness.models.target import load_target
from harness.pair.target_spec import TargetSpec, read_target_spec
from suites.support.random_pair import LAYERS, random_ids, write_pair, write_target

_OFFLOADED: dict[str, str | int] = {
    "model.embed_tokens": "disk",
    **{f"model.layers.{layer}": "disk" if layer % 2 else "cpu" for layer in range(LAYERS)},
    "model.norm": "cpu",
    "model.rotary_emb": "cpu",
    "lm_head": "disk",
}
_PLACES: dict[str, Any] = {"auto": "auto", "by name": {"": "cpu"}, "offloaded": _OFFLOADED}


@pytest.fixture
def spec(tmp_path: Path) -> TargetSpec:
    write_target(tmp_path / "target")
    return read_target_spec(tmp_path / "target")


@pytest.mark.parametrize("places", _PLACES.values(), ids=list(_PLACES))
def test_a_placed_target_computes_the_same(places: Any, spec: TargetSpec) -> None:
    plain = load_target(spec, dtype=torch.float32)
    placed = load_target(spec, dtype=torch.float32, placement=Placement("cpu", places))
    ids, boundaries = random_ids(2, 9), (0, 2, LAYERS)
    with plain.capture(boundaries) as expected, placed.capture(boundaries) as capture, torch.inference_mode():
        assert torch.equal(placed.forward(ids), plain.forward(ids))
    assert torch.equal(capture.concatenated(), expected.concatenated())
    assert torch.equal(placed.embedding, plain.embedding)
    assert placed.device == torch.device("cpu")


def test_a_whole_pair_is_measured_offloaded_and_says_so(tmp_path: Path) -> None:
    file = write_pair(tmp_path)
    plain = measure(prepare(file), prompts="3").run
    lines = "\n".join(f'"{name}" = "{place}"' for name, place in _OFFLOADED.items())
    file.write_text(f"{file.read_text()}\n[engine.device_map]\n{lines}\n")
    placed = measure(prepare(file), prompts="3").run
    assert [record.histogram for record in placed.records] == [record.histogram for record in plain.records]
    away = sum(place == "disk" for place in _OFFLOADED.values())
    assert any(note.startswith(f"{away} of {len(_PLACES['offloaded'])} modules") for note in placed.notes)
    assert not plain.notes


def test_values_that_were_left_in_the_checkpoint_are_looked_at(spec: TargetSpec) -> None:
    file = spec.path / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    tensors["lm_head.weight"][3, 5] = float("nan")
    safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"lm_head\.weight.*not finite|not finite.*1 of"):
        load_target(spec, dtype=torch.float32, placement=Placement("cpu", _OFFLOADED))


def test_a_map_needs_accelerate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert Placement("cpu").options == {}
    assert Placement("cuda").options == {}
    with pytest.raises(InputError, match="pip install accelerate"):
        _ = Placement("cpu", "auto", Path("a.pair.toml")).options


def test_weights_go_straight_to_a_gpu() -> None:
    assert Placement("cuda:1").options == {"device_map": {"": "cuda:1"}}
    assert Placement("cpu").options == {}


def test_another_kind_of_device_than_the_golden_is_named_by(tmp_path: Path) -> None:
    model = torch.nn.Module()
    model.hf_device_map = {"model.layers.0": 0, "lm_head": "cpu"}  # type: ignore[assignment, unused-ignore]
    Placement("cuda", "auto").require_usable(model)
    assert Placement("cuda", "auto").notes(model) == [
        "1 of 2 modules of the target are offloaded (lm_head): every forward loads them"
    ]
    with pytest.raises(InputError, match=r'engine\.device_map.*engine\.device = "cuda"') as caught:
        Placement("cpu", "auto", tmp_path / "a.pair.toml").require_usable(model)
    assert "a.pair.toml" in str(caught.value)
