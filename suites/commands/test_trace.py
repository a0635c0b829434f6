"""`harness trace`, on the tiny pair with weights and on a Kimi-shaped one from configs alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from suites.support.builtin_pairs import copy_pair
from suites.support.command import Command
from suites.support.gemma3_pair import serve, write_gemma3_pair

KEY = "eagle_aux_hidden_state_layer_ids"


MLA: dict[str, Any] = {
    "intermediate_size": 18432,
    "num_attention_heads": 64,
    "num_hidden_layers": 1,
    "vocab_size": 163840,
    "draft_vocab_size": 32000,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "rope_scaling": {"type": "yarn", "factor": 64.0, "original_max_position_embeddings": 4096},
}


def _kimi(
    folder: Path,
    ids: list[int] | None,
    *,
    trained_as: str,
    served_by: str,
    top: bool = False,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> Path:
    """Write the configs of a pair of Kimi-K2.5's size; there are no weights."""
    for name in ("target", "draft"):
        (folder / name).mkdir()
    target = {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "text_config": {"num_hidden_layers": 61, "hidden_size": 7168, "vocab_size": 163840},
    }
    draft: dict[str, Any] = {"architectures": ["Eagle3DeepseekV2ForCausalLM"], "hidden_size": 7168, **more}
    if ids is not None:
        draft |= {KEY: ids} if top else {"eagle_config": {KEY: ids}}
    (folder / "target/config.json").write_text(json.dumps(target))
    (folder / "draft/config.json").write_text(json.dumps(draft))
    file = folder / "kimi.pair.toml"
    file.write_text(
        f'name = "kimi"\ntarget = "target"\ndraft = "draft"\nprompts = "none.jsonl"\n'
        f'trained_as = "{trained_as}"\nserved_by = "{served_by}"\n'
    )
    return file


def _steps(body: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {step["name"]: step for step in body["steps"]}


def test_the_tiny_pair_agrees_at_every_step(harness: Command) -> None:
    outcome = harness("trace", "tiny", "--json")
    assert outcome.status == 0
    assert outcome.json["first_wrong"] is None
    steps = _steps(outcome.json)
    assert list(steps) == [
        "target",
        "layer ids",
        "trained as",
        "flags",
        "concatenation",
        "fc",
        "draft tensors",
        "captured, slot 0",
        "captured, slot 1",
        "captured, slot 2",
        "concatenated",
        "fc output",
        "first proposals",
    ]
    assert steps["trained as"]["value"] == [2, 4, 7]
    assert steps["captured, slot 2"]["value"]["boundary"] == 7
    assert steps["captured, slot 2"]["value"]["shape"][2] == 128
    assert steps["concatenated"]["value"]["shape"][2] == 384
    assert steps["first proposals"]["ok"] is True
    assert all(step["source"] for step in steps.values())
    assert "every step agrees" in harness("trace", "tiny").out


def test_the_first_disagreement_of_a_kimi_is_marked_at_true_size(tmp_path: Path, harness: Command) -> None:
    """The founding case: -1 was the patched engine's sentinel, which no release knows."""
    file = _kimi(tmp_path, [-1, 2, 30], trained_as="sglang-sentinel", served_by="sglang==0.5.23")
    outcome = harness("trace", file, "--static", "--json")
    assert outcome.status == 1
    steps = _steps(outcome.json)
    assert outcome.json["first_wrong"] == "served by"
    assert steps["trained as"]["value"] == [0, 3, 31]
    assert (steps["served by"]["ok"], steps["served by"]["value"]) == (False, None)
    assert "does not stand for a hidden state" in steps["served by"]["note"]
    text = " ".join(harness("trace", file, "--static").out.split())
    assert "✗ served by" in text
    assert "first step that does not agree: served by" in text


@pytest.mark.parametrize(("version", "served", "status"), [("0.5.12", [3, 31, 59], 1), ("0.5.13", [2, 30, 58], 0)])
def test_an_upgrade_alone_decides(
    version: str, served: list[int], status: int, tmp_path: Path, harness: Command
) -> None:
    file = _kimi(tmp_path, [2, 30, 58], trained_as="eagle", served_by=f"sglang=={version}")
    outcome = harness("trace", file, "--static", "--json")
    assert outcome.status == status
    steps = _steps(outcome.json)
    assert steps["served by"]["value"] == served
    assert steps["concatenation"]["value"]["width"] == 21504
    assert steps["fc"]["value"]["input"] == 21504
    if status:
        assert f"trained on boundaries [2, 30, 58], served {served}" in steps["served by"]["note"]


def test_the_tensors_of_a_latent_draft_at_true_size_without_weights(tmp_path: Path, harness: Command) -> None:
    file = _kimi(tmp_path, [2, 30, 58], trained_as="eagle", served_by="sglang==0.5.23", more=MLA)
    outcome = harness("trace", file, "--static", "--json")
    assert outcome.status == 0
    step = _steps(outcome.json)["draft tensors"]
    assert step["value"] == {"tensors": 19, "fc.weight": [7168, 21504]}
    assert "no weights to compare with" in step["source"]


def test_a_config_too_short_to_know_the_tensors_says_which_key_is_missing(tmp_path: Path, harness: Command) -> None:
    file = _kimi(tmp_path, [2, 30, 58], trained_as="eagle", served_by="sglang==0.5.23")
    step = _steps(harness("trace", file, "--static", "--json").json)["draft tensors"]
    assert step["note"] == "not known: num_attention_heads: the key is missing"


@pytest.mark.parametrize(
    ("flag", "wrong"), [({"fc_norm": True}, False), ({"norm_before_fc": True}, True), ({"norm_output": True}, False)]
)
def test_flags_of_the_latent_draft_class(flag: dict[str, bool], wrong: bool, tmp_path: Path, harness: Command) -> None:
    """SGLang's class for it has no norm over the concatenation, which its LLaMA class has."""
    file = _kimi(tmp_path, [2, 30, 58], trained_as="eagle", served_by="sglang==0.5.23", more={**MLA, **flag})
    body = harness("trace", file, "--static", "--json").json
    step = _steps(body)["flags"]
    assert (step["ok"], body["first_wrong"]) == (not wrong, "flags" if wrong else None)
    if wrong:
        assert "sglang==0.5.23 does not read norm_before_fc = true" in step["note"]


def test_weights_of_another_width_than_the_config_says(tmp_path: Path, harness: Command) -> None:
    file = copy_pair(tmp_path, ids=[1, 3])
    body = harness("trace", file, "--static", "--json").json
    assert body["first_wrong"] == "draft tensors"
    assert "fc.weight" in _steps(body)["draft tensors"]["note"]


def test_ids_that_the_engine_does_not_read_are_told(tmp_path: Path, harness: Command) -> None:
    file = _kimi(tmp_path, [5, 30, 50], trained_as="eagle", served_by="sglang==0.5.23", top=True)
    outcome = harness("trace", file, "--static", "--json")
    assert outcome.status == 1
    note = _steps(outcome.json)["served by"]["note"]
    assert f"does not read {KEY}, and takes its default" in note
    assert "served [2, 30, 58]" in note


def test_a_wrong_id_shows_in_the_proposals(tmp_path: Path, harness: Command) -> None:
    file = copy_pair(tmp_path, ids=[-1, 1, 3])
    outcome = harness("trace", file, "--json")
    steps = _steps(outcome.json)
    assert steps["trained as"]["value"] == [0, 2, 4]
    assert (outcome.status, outcome.json["first_wrong"]) == (1, "first proposals")
    assert "the golden has [250, 151, 172, 87]" in steps["first proposals"]["note"]


def test_a_repeated_id_is_lost_in_sglang_and_the_width_says_so(tmp_path: Path, harness: Command) -> None:
    file = _kimi(tmp_path, [2, 30, 30], trained_as="eagle", served_by="sglang==0.5.23")
    outcome = harness("trace", file, "--static", "--json")
    steps = _steps(outcome.json)
    assert outcome.json["first_wrong"] == "served by"
    assert "ascending order, each once" in steps["served by"]["note"]
    assert (steps["fc"]["ok"], steps["fc"]["note"]) == (False, "the captured states are 14336 wide")


@pytest.mark.parametrize("static", [True, False])
def test_states_that_a_known_fault_spoils_do_not_agree(static: bool, tmp_path: Path, harness: Command) -> None:
    file = write_gemma3_pair(tmp_path)
    serve(file)
    outcome = harness("trace", file, *(["--static"] if static else []), "--json")
    assert (outcome.status, outcome.json["first_wrong"]) == (1, "served by")
    step = _steps(outcome.json)["served by"]
    assert (step["ok"], step["value"]) == (False, [None, None, None])
    assert "sglang#39286" in step["note"]
    text = harness("trace", file, "--static").out
    assert "sglang#39286" in text.splitlines()[-1]
    assert "✗ served by [none, none, none]" in " ".join(text.split())


def test_a_release_that_captures_nothing_is_no_width_for_the_checkpoint(tmp_path: Path, harness: Command) -> None:
    file = _kimi(tmp_path, [2, 30, 58], trained_as="eagle", served_by="sglang==0.5.21", more=MLA)
    config = file.parent / "target" / "config.json"
    config.write_text(config.read_text().replace("KimiK25For", "Qwen3_5For"))
    outcome = harness("trace", file, "--static", "--json")
    assert (outcome.status, outcome.json["first_wrong"]) == (1, "served by")
    steps = _steps(outcome.json)
    assert (steps["served by"]["value"], steps["concatenation"]["value"]["width"]) == ([], 0)
    assert steps["draft tensors"]["value"]["fc.weight"] == [7168, 21504]


def test_a_writers_numbering_is_read_whatever_its_engine_captures(tmp_path: Path, harness: Command) -> None:
    """A fault touches the engine that serves; the ids mean what they mean, and the reference captures that."""
    file = write_gemma3_pair(tmp_path)
    file.write_text(file.read_text().replace('"specforge"', '"sglang==0.5.23"'))
    outcome = harness("trace", file, "--json")
    assert (outcome.status, outcome.json["first_wrong"]) == (0, None)
    step = _steps(outcome.json)["trained as"]
    assert (step["ok"], step["value"]) == (None, [2, 4, 7])
    assert "sglang#39286" in step["note"]


@pytest.mark.parametrize("key", ["trained_as", "served_by"])
def test_a_convention_that_is_not_known_is_shown_where_it_is_used(key: str, tmp_path: Path, harness: Command) -> None:
    file = _kimi(tmp_path, [2, 30, 58], trained_as="eagle", served_by="vllm")
    unknown = 'trained_as = "eagle"' if key == "trained_as" else 'served_by = "vllm"'
    file.write_text(file.read_text().replace(unknown, f'{key} = "sglang==new"'))
    outcome = harness("trace", file, "--static", "--json")
    assert (outcome.status, outcome.json["first_wrong"]) == (1, key.replace("_", " "))
    assert _steps(outcome.json)["flags"]["value"] is None


def test_nobody_says_who_wrote_the_ids(tmp_path: Path, harness: Command) -> None:
    file = _kimi(tmp_path, [2, 30, 58], trained_as="eagle", served_by="vllm")
    file.write_text(file.read_text().replace('trained_as = "eagle"\n', ""))
    outcome = harness("trace", file, "--static")
    assert outcome.status == 2
    assert "expected modelopt or sglang" in outcome.err
