"""`harness layers`, on a config of each kind that is found in public."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from suites.support.builtin_pairs import FIXTURES
from suites.support.command import Command

KEY = "eagle_aux_hidden_state_layer_ids"
LLAMA: dict[str, Any] = {"hidden_size": 4096, "vocab_size": 128256, "draft_vocab_size": 32000, "num_hidden_layers": 1}
# (config, target's layers and architecture, family, boundaries trained on, disagreements)
CONFIGS: dict[str, tuple[dict[str, Any], int, str, str, list[int], set[str]]] = {
    "EAGLE repository": (
        {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **LLAMA},
        32,
        "LlamaForCausalLM",
        "eagle",
        [2, 16, 29],
        {"speculators==0.3"},
    ),
    "SpecForge, DeepSeek-V3": (
        {"architectures": ["LlamaForCausalLMEagle3"], **LLAMA, "eagle_config": {KEY: [1, 29, 57]}},
        61,
        "DeepseekV3ForCausalLM",
        "llama-eagle3",
        [2, 30, 58],
        {"eagle", "vllm", "speculators==0.4"},
    ),
    "speculators, ids copied at the top": (
        {
            "architectures": ["Eagle3Speculator"],
            "speculators_model_type": "eagle3",
            "transformer_layer_config": {"hidden_size": 4096, "vocab_size": 151936},
            "draft_vocab_size": 32000,
            KEY: [1, 46, 90],
        },
        94,
        "Qwen3MoeForCausalLM",
        "speculators",
        [1, 46, 90],
        # SGLang does not see ids at the top level, and takes its default.
        {"specforge", "modelopt", "speculators==0.3", "sglang-sentinel", "sglang==0.4.10.post2", "sglang==0.5.23"},
    ),
    "ModelOpt, Kimi": (
        {"architectures": ["Eagle3DeepseekV2ForCausalLM"], "model_type": "kimi_k2", "eagle_config": {KEY: [2, 30, 58]}},
        61,
        "KimiK25ForConditionalGeneration",
        "deepseek",
        [3, 31, 59],
        {"eagle", "vllm", "speculators==0.4", "sglang==0.5.13", "sglang==0.5.14", "sglang==0.5.23"},
    ),
    "AngelSlim": (
        {"architectures": ["Eagle3LlamaForCausalLM"], "target_model_type": "qwen3", **LLAMA},
        36,
        "Qwen3ForCausalLM",
        "angelslim",
        [2, 18, 33],
        {"speculators==0.3"},
    ),
    "EAGLE-3.1": (
        {"architectures": ["LlamaForCausalLMEagle3"], **LLAMA, "fc_norm": True, "norm_output": True},
        32,
        "LlamaForCausalLM",
        "llama-eagle3",
        [2, 16, 29],
        {"speculators==0.3"},
    ),
    "gpt-oss with the last boundary": (
        {"architectures": ["LlamaForCausalLMEagle3"], **LLAMA, "eagle_config": {KEY: [23, 29, 35]}},
        36,
        "GptOssForCausalLM",
        "llama-eagle3",
        [24, 30, 36],
        {"eagle", "vllm", "speculators==0.4", "sglang-sentinel", "sglang==0.5.1", "sglang==0.5.16"},
    ),
}


def _write(tmp_path: Path, config: dict[str, Any]) -> Path:
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "config.json").write_text(json.dumps(config))
    return tmp_path / "draft"


@pytest.mark.parametrize("name", CONFIGS)
def test_every_kind_of_config_is_read_for_every_engine(name: str, tmp_path: Path, harness: Command) -> None:
    config, layers, architecture, family, trained, disagreements = CONFIGS[name]
    draft = _write(tmp_path, config)
    outcome = harness("layers", draft, "--layers", layers, "--arch", architecture, "--json")
    assert outcome.status == 0
    body = outcome.json
    assert (body["family"], body["trained"]) == (family, trained)
    assert set(body["disagreements"]) == disagreements
    for engine in body["engines"].values():
        assert engine["boundaries"] is not None
        assert engine["source"]
        assert (engine["write"] is None) == (engine["cannot_say"] is not None)
    text = harness("layers", draft / "config.json", "--layers", layers, "--arch", architecture).out
    assert text.count("✗") == len(disagreements)


def test_what_to_write_makes_an_engine_agree(tmp_path: Path, harness: Command) -> None:
    config, layers, architecture, _, trained, _ = CONFIGS["ModelOpt, Kimi"]
    options = ("--layers", layers, "--arch", architecture, "--json")
    body = harness("layers", _write(tmp_path, config), *options).json
    newest = body["engines"]["sglang==0.5.23"]
    assert newest["boundaries"] == [2, 30, 58]
    (tmp_path / "draft/config.json").write_text(json.dumps(config | {"eagle_config": {KEY: newest["write"]}}))
    again = harness("layers", tmp_path / "draft", *options).json["engines"]["sglang==0.5.23"]
    assert again["boundaries"] == trained
    # The last boundary cannot be said in a loop that ends before it.
    gpt, layers, architecture, *_ = CONFIGS["gpt-oss with the last boundary"]
    (tmp_path / "draft/config.json").write_text(json.dumps(gpt))
    sentinel = harness("layers", tmp_path / "draft", "--layers", layers, "--arch", architecture, "--json").json
    assert sentinel["engines"]["sglang-sentinel"]["write"] is None
    assert "never reached" in sentinel["engines"]["sglang-sentinel"]["cannot_say"]


def test_a_release_with_a_known_fault_is_marked_with_its_thread(tmp_path: Path, harness: Command) -> None:
    """Gemma 3 on 0.5.17 to 0.5.23: the rule is as before, and the states are not any boundary's."""
    draft = _write(tmp_path, CONFIGS["EAGLE repository"][0])
    options = ("--layers", "26", "--arch", "Gemma3ForCausalLM")
    outcome = harness("layers", draft, *options, "--json")
    assert outcome.status == 0
    engines = outcome.json["engines"]
    faulty = {name for name, engine in engines.items() if engine["fault"] is not None}
    assert faulty == {"sglang==0.5.17", "sglang==0.5.23"}
    assert set(outcome.json["disagreements"]) == faulty | {"speculators==0.3"}
    for name in faulty:
        engine = engines[name]
        assert (engine["boundaries"], engine["captured"]) == ([2, 13, 23], [None, None, None])
        assert (engine["lost"], engine["fault"]["thread"]) == ([2, 13, 23], "sglang#39286")
        assert engine["write"] is None
        assert "sglang#39286" in engine["cannot_say"]
        assert "sglang#39286" in engine["notes"][0]
    assert engines["sglang==0.4.10.post2"]["captured"] == [2, 13, 23]
    text = harness("layers", draft, *options).out
    lines = [line for line in text.splitlines() if "sglang==0.5.17" in line or "sglang==0.5.23" in line]
    assert all(line.startswith("✗") for line in lines)
    assert "known fault: SGLang 0.5.17 to 0.5.23" in text
    assert text.count("sglang#39286") == len(faulty) + 1


def test_the_last_boundary_that_a_loop_never_reaches_is_lost(tmp_path: Path, harness: Command) -> None:
    gpt, layers, architecture, *_ = CONFIGS["gpt-oss with the last boundary"]
    body = harness("layers", _write(tmp_path, gpt), "--layers", layers, "--arch", architecture, "--json").json
    engine = body["engines"]["sglang==0.5.16"]
    assert (engine["captured"], engine["lost"], engine["fault"]) == ([24, 30], [36], None)
    assert "never reached" in engine["notes"][0]


def test_who_wrote_the_ids_is_assumed_and_said_or_given(tmp_path: Path, harness: Command) -> None:
    config, layers, architecture, *_ = CONFIGS["ModelOpt, Kimi"]
    options = ("--layers", layers, "--arch", architecture)
    draft = _write(tmp_path, config)
    assert "the likeliest writer" in " ".join(harness("layers", draft, *options).out.split())
    body = harness("layers", draft, *options, "--trained-as", "sglang==0.5.23", "--json").json
    assert (body["assumed"], body["trained"]) == (False, [2, 30, 58])
    assert "sglang==0.5.12" in body["disagreements"]


def test_without_a_target_nothing_is_guessed(tmp_path: Path, harness: Command) -> None:
    body = harness("layers", _write(tmp_path, CONFIGS["EAGLE repository"][0]), "--json").json
    assert body["trained"] is None
    assert all(engine["boundaries"] is None for engine in body["engines"].values())
    assert all("give --target" in engine["reason"] for engine in body["engines"].values())
    assert body["disagreements"] == []


def test_the_target_says_layers_and_architecture(harness: Command) -> None:
    body = harness("layers", FIXTURES / "tiny/draft", "--target", FIXTURES / "tiny/target", "--json").json
    assert body["engines"]["sglang==0.5.23"]["boundaries"] == [2, 4, 7]


@pytest.mark.parametrize(
    ("config", "options", "says"),
    [
        ({"architectures": ["PEagleDraftModel"]}, (), "a P-EAGLE draft has several layers"),
        ({"architectures": ["MedusaModel"]}, (), "not of a known kind of draft"),
        ({"architectures": ["LlamaForCausalLM"]}, (), "not of a known kind of draft"),
        ({"speculators_model_type": "dflash"}, (), "not of a known kind of draft"),
        ({"architectures": ["LlamaForCausalLMEagle3"], KEY: [1], "eagle_config": {KEY: [2]}}, (), "two keys"),
        ({"architectures": ["LlamaForCausalLMEagle3"], "eagle_config": 3}, (), "expected an object"),
        (
            {"architectures": ["LlamaForCausalLMEagle3"], KEY: [40, 50, 60]},
            ("--layers", "32", "--arch", "LlamaForCausalLM", "--trained-as", "specforge"),
            "cannot be read as specforge",
        ),
        (
            {"architectures": ["LlamaForCausalLMEagle3"]},
            ("--layers", "32", "--target", str(FIXTURES / "tiny/target")),
            "--target says both",
        ),
    ],
)
def test_bad_input_is_told(
    config: dict[str, Any], options: tuple[str, ...], says: str, tmp_path: Path, harness: Command
) -> None:
    outcome = harness("layers", _write(tmp_path, config), *options)
    assert outcome.status == 2
    assert says in outcome.err
    assert outcome.err.count("\n") == 1


def test_no_such_draft(tmp_path: Path, harness: Command) -> None:
    outcome = harness("layers", tmp_path / "nowhere")
    assert outcome.status == 2
    assert "does not exist" in outcome.err


@pytest.mark.parametrize("command", ["trace", "layers", "translate"])
def test_the_help_says_what_a_boundary_is_in_the_words_of_engines(command: str, harness: Command) -> None:
    text = " ".join(harness(command, "--help").out.split())
    assert "aux hidden state after block k" in text
    assert command == "translate" or "aux hidden states" in text


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--layers", "8"], "the target's architecture is needed: give --target or --arch"),
        (["--layers", "8", "--arch", "FooForCausalLM"], "the rule by which sglang reads layer ids of this target is"),
    ],
)
def test_sglang_has_a_row_even_if_its_rule_is_not_known(options: list[str], reason: str, harness: Command) -> None:
    """A mistyped architecture must not look like a table without SGLang, and no advice is needed to know the class."""
    answer = harness("layers", FIXTURES / "tiny" / "draft", *options, "--json").json["engines"]
    assert answer["sglang"]["boundaries"] is None
    assert answer["sglang"]["reason"].startswith(reason)
    assert answer["vllm"]["write"] == [2, 4, 7]
