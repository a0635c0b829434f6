"""The tiny pair as committed, and the recipe that made it."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from transformers import AutoTokenizer

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "fixtures" / "tiny"
# The recipe is a script with a package beside it, not part of any distribution.
sys.path.insert(0, str(TINY))

from tinypair import prompts as recipe_prompts  # noqa: E402
from tinypair import report  # noqa: E402
from tinypair.corpus import Series, corpus  # noqa: E402
from tinypair.draft import DraftSettings  # noqa: E402
from tinypair.measure import Cost, Measured, cost, faults  # noqa: E402
from tinypair.stages import BOUNDARIES, Recipe  # noqa: E402
from tinypair.target import TargetSettings  # noqa: E402
from tinypair.texts import Group  # noqa: E402

from fixtures.training.files import RefusedError, new_folder  # noqa: E402
from harness.pair.prompts import Prompt  # noqa: E402

LAYER = {
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
    "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "input_layernorm", "post_attention_layernorm",
}  # fmt: skip
DRAFTS = sorted(BOUNDARIES)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Repeatable and fastest; other tests get their settings back."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def committed() -> list[dict[str, str]]:
    return recipe_prompts.read(TINY / "prompts.jsonl")


@pytest.fixture(scope="module")
def figures() -> dict[str, object]:
    found: dict[str, object] = json.loads((TINY / "report.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def training(figures: dict[str, object]) -> list[Series]:
    """The corpus that the committed target was trained on."""
    assert isinstance(figures["seed"], int)
    assert isinstance(figures["series"], int)
    return list(islice(corpus(figures["seed"]), figures["series"]))


def test_the_target_has_the_layout_of_a_hugging_face_checkpoint() -> None:
    tensors = load_file(TINY / "target" / "model.safetensors")
    expected = {f"model.layers.{layer}.{name}.weight" for layer in range(8) for name in LAYER}
    assert set(tensors) == expected | {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"}
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert not torch.equal(tensors["lm_head.weight"], tensors["model.embed_tokens.weight"])
    config = json.loads((TINY / "target" / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (config["num_hidden_layers"], config["hidden_size"], config["head_dim"]) == (8, 128, 32)
    assert config["tie_word_embeddings"] is False
    assert config["dtype"] == "bfloat16"
    files = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {file.name for file in (TINY / "target").iterdir()} == files


@pytest.mark.parametrize("name", DRAFTS)
def test_a_draft_has_the_layout_of_a_specforge_checkpoint(name: str) -> None:
    tensors = load_file(TINY / name / "model.safetensors")
    layer = {f"midlayer.{part}.weight" for part in LAYER | {"hidden_norm"}}
    assert set(tensors) == layer | {"fc.weight", "norm.weight", "lm_head.weight", "d2t", "t2d"}
    assert {tensor.dtype for key, tensor in tensors.items() if key.endswith("weight")} == {torch.bfloat16}
    assert tensors["fc.weight"].shape == (128, 384)
    assert tensors["lm_head.weight"].shape == (256, 128)
    config = json.loads((TINY / name / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    ids = config["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
    assert tuple(layer_id + 1 for layer_id in ids) == BOUNDARIES[name]
    assert config["draft_vocab_size"] == 256
    assert "target_hidden_size" not in config


@pytest.mark.parametrize("name", DRAFTS)
def test_the_vocabulary_maps_agree_and_are_not_trivial(name: str) -> None:
    tensors = load_file(TINY / name / "model.safetensors")
    d2t, t2d = tensors["d2t"], tensors["t2d"]
    assert d2t.dtype == torch.int64
    assert t2d.dtype == torch.bool
    targets = torch.arange(256) + d2t
    assert torch.equal(targets, t2d.nonzero()[:, 0])
    assert not torch.equal(targets, torch.arange(256))
    assert len(d2t.unique()) > 10


@pytest.mark.parametrize("name", ["target", *DRAFTS])
def test_training_has_moved_the_norms_off_one(name: str) -> None:
    tensors = load_file(TINY / name / "model.safetensors")
    distances = [
        float((tensor.float() - 1).abs().mean()) for key, tensor in tensors.items() if key.endswith("norm.weight")
    ]
    assert min(distances) > 0.05


def test_the_pair_is_small() -> None:
    sizes = [file.stat().st_size for file in TINY.rglob("*") if file.is_file() and ".work" not in file.parts]
    assert sum(sizes) < 8_000_000


def test_the_prompts_are_as_many_and_as_long_as_promised(committed: list[dict[str, str]]) -> None:
    assert len(committed) == len({line["id"] for line in committed}) == 96
    kinds = {line["category"] for line in committed}
    assert len(kinds) >= 6
    assert {line["category"] for line in committed[: len(kinds)]} == kinds
    tokenizer = AutoTokenizer.from_pretrained(TINY / "target")
    ids = [tokenizer(line["text"]).input_ids for line in committed]
    assert {row[0] for row in ids} == {tokenizer.bos_token_id}
    assert tokenizer.unk_token_id not in {token for row in ids for token in row}
    lengths = sorted(map(len, ids))
    assert lengths[0] < 40
    assert lengths[-1] > 380
    assert sum(length >= 300 for length in lengths) >= 10
    assert [tokenizer.decode(row, skip_special_tokens=True) for row in ids] == [line["text"] for line in committed]


def test_no_prompt_is_in_the_corpus(committed: list[dict[str, str]], training: list[Series]) -> None:
    recipe_prompts.check_held_out(committed, training)
    part = training[17].parts[0]
    planted = {"id": "planted", "category": "build", "text": part[: len(part) // 2]}
    with pytest.raises(RefusedError, match="planted"):
        recipe_prompts.check_held_out([*committed, planted], training)
    with pytest.raises(RefusedError, match="the same"):
        recipe_prompts.check_held_out([*committed, committed[3] | {"id": "twin"}], training)


def test_the_report_meets_its_own_bars(figures: dict[str, object]) -> None:
    for name in DRAFTS:
        found = figures[name]
        assert isinstance(found, dict)
        table = {fault: Cost(**value) for fault, value in found["faults"].items()}
        other = next(boundaries for key, boundaries in BOUNDARIES.items() if key != name)
        assert set(table) == set(faults(BOUNDARIES[name], 8, other))
        report.check(name, found, table)


def test_the_recipe_is_the_one_that_made_the_committed_weights(figures: dict[str, object]) -> None:
    assert json.loads(json.dumps(asdict(TargetSettings()))) == figures["target_settings"]
    assert json.loads(json.dumps(asdict(DraftSettings()))) == figures["draft_settings"]
    assert Recipe(TINY, 0).series == figures["series"]


def _build(folder: Path) -> dict[str, str]:
    """A miniature run of the whole training; returns each file's hash."""
    recipe = Recipe(
        out=folder,
        seed=3,
        series=60,
        target_settings=TargetSettings(steps=3, early=0.7, long=(1, 200)),
        draft_settings=DraftSettings(steps=2, batch=128),
        groups=(Group(64, 24, 40), Group(4, 40, 50)),
        console=Console(file=io.StringIO()),
    )
    recipe.train_target()
    recipe.write_texts()
    for name in DRAFTS:
        recipe.train_draft(name)
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="the recipe trains with torch.optim.Muon (torch >= 2.9)")
def test_equal_seeds_give_equal_bytes(tmp_path: Path) -> None:
    first, second = _build(tmp_path / "first"), _build(tmp_path / "second")
    assert first == second
    assert {"target/model.safetensors", "draft/model.safetensors", "draft-embedding/model.safetensors"} <= set(first)
    assert first["draft/model.safetensors"] != first["draft-embedding/model.safetensors"]


def _interrupted(folder: Path) -> None:
    with new_folder(folder) as temporary:
        (temporary / "weights").write_text("half")
        raise KeyboardInterrupt


def test_a_stage_that_fails_leaves_the_old_folder(tmp_path: Path) -> None:
    folder = tmp_path / "target"
    with new_folder(folder) as temporary:
        (temporary / "weights").write_text("old")
    with pytest.raises(KeyboardInterrupt):
        _interrupted(folder)
    assert [file.name for file in tmp_path.iterdir()] == ["target"]
    assert (folder / "weights").read_text() == "old"


def _prompt(number: int) -> Prompt:
    return Prompt(f"p{number}", "route", (1,), "")


def test_a_looping_target_is_refused() -> None:
    varied = [tuple(range(number, number + 60)) for number in range(4)]
    found = report.loops([_prompt(number) for number in range(4)], varied, eos=2)
    assert found["loop_max"] == 0
    assert found["ended"] == 3
    looping = (1, 2, 3) * 20
    with pytest.raises(RefusedError, match="p3"):
        report.loops([_prompt(number) for number in range(4)], [*varied[:3], looping], eos=2)
    with pytest.raises(RefusedError, match="alike"):
        report.loops([_prompt(number) for number in range(4)], [*varied[:3], varied[0]], eos=2)


def test_a_pair_whose_wires_cannot_be_told_apart_is_refused() -> None:
    right = Measured(0.9, 4.0, (-0.1, -0.2, -0.3, -0.4))
    plain = cost(right, Measured(0.88, 3.9, (-0.2, -0.31, -0.41, -0.49)), (1, 4, 7))
    assert plain.drop == pytest.approx(0.02)
    assert plain.likelihood == pytest.approx(-0.1025)
    assert plain.error == pytest.approx(0.0047871, rel=1e-4)
    noisy = cost(right, Measured(0.89, 3.9, (-0.4, -0.1, -0.1, -0.5)), (3, 4, 7))
    found = {"rate": {"4": 0.9}, "outside_draft_vocabulary": 5}
    report.check("draft", found, {"slot 0 -1": plain})
    with pytest.raises(RefusedError, match=r"slot 0 \+1"):
        report.check("draft", found, {"slot 0 -1": plain, "slot 0 +1": noisy})
    with pytest.raises(RefusedError, match=r"79\.0%"):
        report.check("draft", found | {"rate": {"4": 0.79}}, {"slot 0 -1": plain})
    with pytest.raises(RefusedError, match="vocabulary"):
        report.check("draft", found | {"outside_draft_vocabulary": 0}, {"slot 0 -1": plain})


def test_wrong_wirings_are_wrong_and_possible() -> None:
    found = faults((2, 4, 7), 8, (0, 2, 4))
    assert found["slot 2 +1"] == (2, 4, 8)
    assert found["all -1"] == (1, 3, 6)
    assert found["slots 0 and 2 swapped"] == (7, 4, 2)
    assert found["the other draft's"] == (0, 2, 4)
    assert "slot 0 -1" not in faults((0, 2, 4), 8, (2, 4, 7))
    assert "embedding first" not in faults((0, 2, 4), 8, (2, 4, 7))
