"""A draft's flags: read as its writer meant them, served as an engine acts on them, and told where these differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from harness.commands.measure import measure
from harness.commands.prepare import prepare
from harness.detectors.contract import broken_contract
from harness.errors import InputError
from harness.pair.draft_spec import read_draft_spec
from harness.pair.pair import load_pair
from suites.support.command import Command
from suites.support.random_pair import DRAFT_CONFIG, write_draft, write_pair

IDS = "eagle_aux_hidden_state_layer_ids"


def _pair(folder: Path, *, trained_as: str = "specforge", served_by: str | None = None, **changes: Any) -> Path:
    """Write a pair whose draft has other keys in its config, and the tensors that belong to them."""
    file = write_pair(folder)
    write_draft(folder / "draft", **{**_nested(), **changes})
    text = file.read_text().replace('trained_as = "specforge"', f'trained_as = "{trained_as}"')
    if served_by is not None:
        text = text.replace("[decode]", f'served_by = "{served_by}"\n[decode]')
    file.write_text(text)
    return file


def _nested(**flags: Any) -> dict[str, Any]:
    # Ids that SGLang's loop reaches, all of them.
    return {"eagle_config": {IDS: [0, 1, 2], "use_aux_hidden_state": True, **flags}}


@pytest.mark.parametrize(
    ("served_by", "changes", "told"),
    [
        ("sglang==0.5.23", {"norm_before_residual": True}, "does not read norm_before_residual = true"),
        ("sglang==0.5.16", _nested(norm_before_fc=True), "does not read eagle_config.norm_before_fc = true"),
        ("sglang==0.5.10", {"fc_norm": True}, "does not read fc_norm = true"),
        ("sglang==0.5.10", {"norm_output": True}, "does not read norm_output = true"),
        # SGLang's draft class looks for these at the top only.
        ("sglang==0.5.23", _nested(fc_norm=True), "does not read eagle_config.fc_norm = true"),
        ("sglang==0.5.23", _nested(norm_output=True), "does not read eagle_config.norm_output = true"),
    ],
)
def test_a_flag_that_the_engine_does_not_read(
    served_by: str, changes: dict[str, Any], told: str, tmp_path: Path
) -> None:
    """It runs, its tensors unused, and is wrong: that is what the contract is for."""
    pair = load_pair(_pair(tmp_path, served_by=served_by, **changes))
    problems = broken_contract(pair)
    assert len(problems) == 1
    assert told in problems[0]
    assert str(tmp_path / "draft/config.json") in problems[0]
    served = [np.asarray(record.proposals) for record in measure(prepare(pair.file)).run.records]
    # As trained, the same weights propose something else.
    pair.file.write_text(pair.file.read_text().replace(f'served_by = "{served_by}"\n', ""))
    trained = [np.asarray(record.proposals) for record in measure(prepare(pair.file)).run.records]
    assert any(not np.array_equal(one, other) for one, other in zip(served, trained, strict=True))


@pytest.mark.parametrize(
    ("served_by", "changes"),
    [
        ("sglang==0.5.23", {"fc_norm": True}),
        ("sglang==0.5.12", {"norm_output": True, "fc_norm": True}),
        ("sglang==0.5.18", _nested(norm_before_fc=True)),
        ("sglang==0.5.18", {"norm_before_fc": True}),
        ("vllm", {"norm_before_residual": True}),
    ],
)
def test_a_flag_that_the_engine_reads(served_by: str, changes: dict[str, Any], tmp_path: Path) -> None:
    trained_as = "eagle" if served_by == "vllm" else "specforge"
    ids = {"eagle_config": {IDS: [1, 2, 3]}} if served_by == "vllm" else {}
    assert (
        broken_contract(load_pair(_pair(tmp_path, trained_as=trained_as, served_by=served_by, **changes, **ids))) == []
    )


def test_what_vllm_takes_for_a_flag_that_speculators_left_out(tmp_path: Path) -> None:
    file = _pair(tmp_path)
    config = json.loads((tmp_path / "draft/config.json").read_text())
    ids = config.pop("eagle_config")[IDS]
    outer = {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", IDS: [1, 2, 3]}
    outer |= {"draft_vocab_size": config["draft_vocab_size"], "transformer_layer_config": config}
    (tmp_path / "draft/config.json").write_text(json.dumps(outer))
    file.write_text(
        file.read_text().replace('trained_as = "specforge"', 'trained_as = "speculators==0.4"\nserved_by = "vllm"')
    )
    problems = broken_contract(load_pair(file))
    assert len(ids) == 3
    assert "speculators==0.4 takes norm_before_residual as false, vllm as true" in problems[0]


def test_flags_that_are_absent_are_told(tmp_path: Path, harness: Command) -> None:
    file = _pair(tmp_path)
    outcome = harness("record", file)
    assert outcome.status == 0, outcome.err
    contract = harness("check", file, "--json").json["detectors"]["contract"]
    assert contract["flags"] == {
        "use_aux_hidden_state": True,
        "norm_before_fc": False,
        "fc_norm": False,
        "norm_before_residual": False,
        "norm_output": False,
    }
    assert contract["flags_absent"] == ["norm_before_fc", "fc_norm", "norm_before_residual", "norm_output"]
    assert "4 flags are absent: as in a plain EAGLE-3 draft, which is how specforge takes it" in contract["message"]


@pytest.mark.parametrize(
    ("value", "told"), [(True, "such a draft needs false"), (False, "no engine runs such a draft")]
)
def test_what_specforge_meant_by_norm_output_changed(value: bool, told: str, tmp_path: Path) -> None:
    remarks = read_draft_spec(_pair(tmp_path, norm_output=value).parent / "draft", "specforge").flags.remarks
    assert told in remarks["norm_output"]
    assert not read_draft_spec(tmp_path / "draft", "modelopt").flags.remarks


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"norm_output": True, **_nested(norm_output=False)}, "eagle_config.norm_output and norm_output"),
        ({"fc_norm": True, "use_aux_norm": False}, "fc_norm and use_aux_norm"),
        ({"fc_norm": True, "norm_before_fc": True}, "norm_before_fc and fc_norm"),
        (_nested(use_last_layernorm=False), "eagle_config.use_last_layernorm"),
        (_nested(use_mtp_layernorm=True), "eagle_config.use_mtp_layernorm"),
        (_nested(next_layer_regular=False), "eagle_config.next_layer_regular"),
        (_nested(parallel_draft_step=4), "eagle_config.parallel_draft_step"),
    ],
)
def test_flags_that_contradict_or_belong_to_another_kind_of_draft(
    changes: dict[str, Any], key: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(DRAFT_CONFIG | changes))
    with pytest.raises(InputError) as error:
        read_draft_spec(tmp_path)
    assert error.value.key == key


def test_older_names_of_fc_norm(tmp_path: Path) -> None:
    """The flag use_aux_norm and the tensors aux_norm_low, _mid, _high are fc_norm's before it was numbered."""
    file = _pair(tmp_path, fc_norm=True)
    before = [record.histogram for record in measure(prepare(file)).run.records]
    config = tmp_path / "draft/config.json"
    config.write_text(config.read_text().replace('"fc_norm"', '"use_aux_norm"'))
    weights = tmp_path / "draft/model.safetensors"
    tensors = safetensors.torch.load_file(weights)
    for index, name in enumerate(("low", "mid", "high")):
        tensors[f"aux_norm_{name}.weight"] = tensors.pop(f"fc_norm.{index}.weight")
    safetensors.torch.save_file(tensors, weights, metadata={"format": "pt"})
    assert [record.histogram for record in measure(prepare(file)).run.records] == before


def test_a_head_that_sglang_would_tie_although_it_is_shipped(tmp_path: Path) -> None:
    file = _pair(tmp_path, served_by="sglang==0.5.23", tie_word_embeddings=True)
    assert "uses the embedding instead" in broken_contract(load_pair(file))[0]
    tensors = safetensors.torch.load_file(tmp_path / "draft/model.safetensors")
    assert tensors.pop("lm_head.weight").shape[0] == DRAFT_CONFIG["draft_vocab_size"]
    safetensors.torch.save_file(tensors, tmp_path / "draft/model.safetensors")
    assert broken_contract(load_pair(file)) == []


def test_ids_at_the_top_are_not_served_by_sglang(tmp_path: Path) -> None:
    """It takes its default layers without a word, and the contract must not take the ids for served."""
    config = dict(DRAFT_CONFIG)
    del config["eagle_config"]
    file = _pair(tmp_path, served_by="sglang==0.5.23")
    (tmp_path / "draft/config.json").write_text(json.dumps({**config, IDS: [0, 1, 2]}))
    (tmp_path / "target/config.json").write_text(
        (tmp_path / "target/config.json").read_text().replace('"num_hidden_layers": 4', '"num_hidden_layers": 7')
    )
    pair = load_pair(file)
    assert pair.wiring.trained.boundaries == (1, 2, 3)
    assert pair.wiring.served.boundaries == (2, 3, 4)
    assert f"sglang==0.5.23 does not read {IDS}, and takes its default" in broken_contract(pair)[0]


def _pickled(folder: Path) -> None:
    """Turn a checkpoint's safetensors into the pickle that older exports are."""
    weights = folder / "model.safetensors"
    torch.save(safetensors.torch.load_file(weights), folder / "pytorch_model.bin")
    weights.unlink()


def test_weights_in_pickles(tmp_path: Path) -> None:
    file = write_pair(tmp_path)
    before = [record.histogram for record in measure(prepare(file)).run.records]
    _pickled(tmp_path / "draft")
    _pickled(tmp_path / "target")
    assert [record.histogram for record in measure(prepare(file)).run.records] == before


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("exploded"),))


@pytest.mark.parametrize(
    ("content", "told"),
    [(_Bomb(), "cannot be read"), ([1, 2], "not a state dict"), ({"fc.weight": "text"}, "not a state dict")],
)
def test_a_pickle_that_is_no_state_dict(content: Any, told: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    file = write_pair(tmp_path)
    (tmp_path / "draft/model.safetensors").unlink()
    torch.save(content, tmp_path / "draft/pytorch_model.bin")
    with pytest.raises(InputError, match=told):
        measure(prepare(file))
    assert not (tmp_path / "exploded").exists()
