"""From a pair file to SGLang's arguments, and what is refused before anything starts."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from typing import Any

import pytest

from harness.commands.prepare import prepare
from harness.engines.registry import find_engine, find_prober, find_recorder, split_engine
from harness.engines.sglang import installed
from harness.engines.sglang.arguments import plain_arguments, server_arguments
from harness.errors import InputError
from harness.pair.pair import Pair


@pytest.fixture
def tiny() -> Pair:
    # Not prepared for the engine: that asks whether it is installed.
    return prepare("tiny").with_engine(name="sglang")


def _arguments(pair: Pair) -> dict[str, Any]:
    return server_arguments(pair, running=3, tokens=5000)


def test_a_pair_on_a_cpu(tiny: Pair) -> None:
    arguments = _arguments(tiny)
    assert arguments["model_path"] == str(tiny.target.path)
    assert arguments["speculative_draft_model_path"] == str(tiny.draft.path)
    assert (arguments["speculative_num_steps"], arguments["speculative_num_draft_tokens"]) == (4, 5)
    assert (arguments["speculative_algorithm"], arguments["speculative_eagle_topk"]) == ("EAGLE3", 1)
    assert (arguments["device"], arguments["dtype"], arguments["attention_backend"]) == ("cpu", "float32", "triton")
    assert (arguments["max_running_requests"], arguments["max_total_tokens"]) == (3, 5000)


def test_chain_length_follows_the_pair(tiny: Pair) -> None:
    arguments = _arguments(tiny.with_steps(2))
    assert (arguments["speculative_num_steps"], arguments["speculative_num_draft_tokens"]) == (2, 3)


def test_cuda_keeps_sglangs_own_choices(tiny: Pair) -> None:
    arguments = _arguments(tiny.with_engine(device="cuda:1", dtype="bfloat16"))
    assert (arguments["device"], arguments["base_gpu_id"], arguments["dtype"]) == ("cuda", 1, "bfloat16")
    assert not arguments.keys() & {"attention_backend", "disable_cuda_graph", "max_total_tokens", "mem_fraction_static"}


def test_without_speculation(tiny: Pair) -> None:
    assert not [key for key in plain_arguments(tiny, running=1, tokens=1) if key.startswith("speculative")]


def test_the_pair_files_arguments_win_over_defaults(tiny: Pair) -> None:
    arguments = _arguments(tiny.with_engine(args={"page_size": 16, "attention_backend": "torch_native"}))
    assert (arguments["page_size"], arguments["attention_backend"]) == (16, "torch_native")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ({"speculative_adaptive": True}, "counters mean something else"),
        ({"speculative_use_rejection_sampling": True}, "counters mean something else"),
        ({"enable_multi_layer_eagle": True}, "counters mean something else"),
        ({"speculative_algorithm": "EAGLE"}, "contradicts the pair"),
        ({"speculative_num_steps": 3}, "contradicts the pair"),
        ({"speculative_eagle_topk": 4}, "contradicts the pair"),
        ({"speculative_num_draft_tokens": 8}, "contradicts the pair"),
        ({"speculative_draft_model_path": "elsewhere"}, "contradicts the pair"),
        ({"model_path": "elsewhere"}, "contradicts the pair"),
        ({"dtype": "bfloat16"}, "contradicts the pair"),
        ({"device": "cuda"}, "contradicts the pair"),
        ({"skip_tokenizer_init": False}, "contradicts the pair"),
    ],
)
def test_what_contradicts_the_pair_is_refused(tiny: Pair, args: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        _arguments(tiny.with_engine(args=args))
    assert caught.value.key == f"engine.args.{next(iter(args))}"
    assert caught.value.file == str(tiny.file)


def test_what_repeats_the_pair_is_not(tiny: Pair) -> None:
    repeated = {"speculative_adaptive": False, "speculative_num_steps": 4, "dtype": "float32"}
    assert _arguments(tiny.with_engine(args=repeated)) == _arguments(tiny) | {"speculative_adaptive": False}


def _install(
    monkeypatch: pytest.MonkeyPatch, version: str | None, *, hooks: bool = True, platform: bool = True
) -> None:
    """Pretend that a version of SGLang is installed."""

    def found(_name: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError("sglang")
        return version

    monkeypatch.setattr(importlib.metadata, "version", found)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ["hooks"] if hooks else [])
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object() if platform else None)


@pytest.mark.parametrize("served_by", [None, "sglang", "sglang==0.5.23"])
def test_the_installed_version_serves(tiny: Pair, monkeypatch: pytest.MonkeyPatch, served_by: str | None) -> None:
    _install(monkeypatch, "0.5.23")
    assert installed.require_installed(_served_by(tiny, served_by)) == "0.5.23"


@pytest.mark.parametrize("served_by", ["sglang==0.5.12", "vllm", "sglang-sentinel"])
def test_another_version_does_not(tiny: Pair, monkeypatch: pytest.MonkeyPatch, served_by: str) -> None:
    _install(monkeypatch, "0.5.23")
    with pytest.raises(InputError, match="another engine or version") as caught:
        installed.require_installed(_served_by(tiny, served_by))
    assert (caught.value.key, caught.value.found) == ("served_by", served_by)


def _served_by(pair: Pair, served_by: str | None) -> Pair:
    import dataclasses

    return dataclasses.replace(pair, settings=pair.settings.model_copy(update={"served_by": served_by}))


def test_sglang_is_not_installed(tiny: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, None)
    with pytest.raises(InputError, match="not installed in this environment") as caught:
        installed.require_installed(tiny)
    assert "plugins/sglang-cpu" in str(caught.value.next_step)


def test_the_hooks_are_not_offered(tiny: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, "0.5.23", hooks=False)
    with pytest.raises(InputError, match="does not offer SGLang its hooks"):
        installed.require_installed(tiny)


def test_no_platform_for_a_cpu(tiny: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, "0.5.23", platform=False)
    with pytest.raises(InputError, match="platform plugin"):
        installed.require_installed(tiny)
    assert installed.require_installed(tiny.with_engine(device="cuda")) == "0.5.23"


def test_simulated_acceptance_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_SIMULATE_ACC_LEN", "3")
    with pytest.raises(InputError, match="accept at random") as caught:
        installed.engine_environment("cuda", "folder")
    assert caught.value.key == "SGLANG_SIMULATE_ACC_LEN"


def test_a_list_of_plugins_gets_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_PLUGINS", "other")
    environment = installed.engine_environment("cuda", "folder")
    assert environment["SGLANG_PLUGINS"] == "other,acceptance-harness"
    assert environment["ACCEPTANCE_HARNESS_WATCH"] == "folder"


def test_the_registry_knows_it() -> None:
    assert split_engine("sglang") == ("sglang", "")
    assert type(find_engine("sglang")).__name__ == "SglangEngine"
    assert type(find_prober("sglang")).__name__ == "SglangProber"
    assert type(find_recorder("sglang")).__name__ == "SglangEngine"
    with pytest.raises(InputError, match="records by replay"):
        find_recorder("reference:sequential")
    with pytest.raises(InputError, match="no such engine"):
        split_engine("sglang:replay")
