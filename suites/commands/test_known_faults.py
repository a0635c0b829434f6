"""A pair served by a release of SGLang with a known fault: `check`, `measure` and `record` name its thread."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.commands.check import check
from harness.detectors.contract import not_run
from harness.pair.pair import Pair, load_pair
from suites.support.command import Command
from suites.support.gemma3_pair import BOUNDARIES, IDS_WITH_EMBEDDING, serve, set_ids, write_gemma3_pair

FORWARD = ("target", "lossless", "stages", "proposals", "likelihood", "acceptance")


@pytest.fixture(scope="module")
def recorded_gemma3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny Gemma 3 pair with a golden, recorded as trained."""
    from harness.cli.app import main

    folder = tmp_path_factory.mktemp("gemma3")
    assert main(["record", str(write_gemma3_pair(folder)), "--json"]) == 0
    return folder


@pytest.fixture
def gemma3(recorded_gemma3: Path, tmp_path: Path) -> Path:
    """The pair file of a fresh copy."""
    shutil.copytree(recorded_gemma3, tmp_path / "pair")
    return tmp_path / "pair" / "random.pair.toml"


def test_as_trained_the_pair_passes(gemma3: Path, harness: Command) -> None:
    outcome = harness("check", gemma3, "--json")
    assert (outcome.status, outcome.json["verdict"]) == (0, "pass")
    assert outcome.json["boundaries"] == list(BOUNDARIES)


@pytest.mark.parametrize("engine", ["reference", "reference:sequential"])
def test_check_names_the_thread_and_forms_no_other_state_in_its_place(
    engine: str, gemma3: Path, harness: Command
) -> None:
    serve(gemma3)
    outcome = harness("check", gemma3, "--engine", engine, "--json")
    assert (outcome.status, outcome.json["verdict"]) == (1, "regression")
    detectors = outcome.json["detectors"]
    assert detectors["contract"]["verdict"] == "regression"
    for part in ("sglang#39286", "sglang==0.5.23 serves [none, none, none]", "[2, 4, 7] (specforge)"):
        assert part in detectors["contract"]["message"]
    for name in FORWARD:
        assert detectors[name]["verdict"] == "not_measured"
        assert "replay cannot form the states that sglang==0.5.23 gives (sglang#39286)" in detectors[name]["message"]
    text = harness("check", gemma3).out
    assert "next: serve the pair with a release of SGLang other than 0.5.17 to 0.5.23" in text


def test_one_state_that_cannot_be_formed_is_enough(gemma3: Path) -> None:
    set_ids(gemma3, IDS_WITH_EMBEDDING)
    serve(gemma3)
    result = check(load_pair(gemma3))
    assert result.exit_code == 1
    assert "sglang==0.5.23 serves [0, none, none]" in result.findings["contract"].message
    assert {str(result.findings[name].state) for name in FORWARD} == {"not_measured"}


@pytest.mark.parametrize("version", ["0.5.16", "0.4.10.post2"])
def test_a_release_before_the_fault_is_measured(version: str, gemma3: Path, harness: Command) -> None:
    serve(gemma3, version)
    assert harness("check", gemma3, "--json").json["verdict"] == "pass"


@pytest.mark.parametrize("command", [("measure",), ("record", "--reason", "served")])
def test_nothing_is_measured_or_recorded_by_replay(command: tuple[str, ...], gemma3: Path, harness: Command) -> None:
    serve(gemma3)
    outcome = harness(*command, gemma3)
    assert outcome.status == 2
    assert "sglang#39286" in outcome.err
    assert outcome.err.count("\n") == 1


def _call_it_qwen(file: Path) -> None:
    """Make target and golden those of a class whose releases up to 0.5.21 capture nothing."""
    folder = file.parent
    for config in (folder / "target" / "config.json", folder / "golden" / "random" / "reference-cpu-float32.json"):
        config.write_text(config.read_text().replace("Gemma3ForCausalLM", "Qwen3_5ForConditionalGeneration"))


def _on_sglang(file: Path, version: str) -> Pair:
    return load_pair(file).with_engine(name="sglang").served_as(f"sglang=={version}")


def test_the_engine_itself_is_started_unless_it_would_die(gemma3: Path) -> None:
    """Three states reach the draft's fc, and acceptance shows what they are worth; without any its fc would die."""
    assert not_run(_on_sglang(gemma3, "0.5.23")) is None
    _call_it_qwen(gemma3)
    why = "the engine was not started: by the contract's finding it would crash"
    assert not_run(_on_sglang(gemma3, "0.5.21")) == why
    assert not_run(_on_sglang(gemma3, "0.5.22")) is None


def test_what_would_die_is_told_with_the_thread(gemma3: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _call_it_qwen(gemma3)
    monkeypatch.setattr(
        "harness.commands.check.find_engine", lambda _name: pytest.fail("the engine is started all the same")
    )
    finding = check(_on_sglang(gemma3, "0.5.21")).findings["contract"]
    assert finding.state == "regression"
    assert "sglang==0.5.21 captures nothing of the [2, 4, 7]" in finding.message
    assert "sglang#38307" in finding.message
