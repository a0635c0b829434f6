"""The conformance matrix of the installed SGLang: an upgrade that changes a rule goes red here, naming the class."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.conformance.asked import WHOLE_ENGINE
from harness.conformance.forward import ForwardSession
from harness.conformance.matrix import KNOWN_DIFFERENCE, NOT_JUDGED, build_matrix
from harness.conformance.targets import RUNNABLE
from harness.errors import EngineError
from harness.facts import sglang as facts
from harness.facts.reading.sources import SglangSources, find_installed, read_sources
from harness.facts.rules import AS_IS

pytestmark = [
    pytest.mark.sglang,
    pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="sglang is not installed"),
]


@pytest.fixture(scope="module")
def installed() -> SglangSources:
    folder = find_installed()
    assert folder is not None
    return read_sources(folder)


def _harness(*arguments: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "harness", *arguments, "--json"], capture_output=True, text=True, timeout=600
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_every_setter_does_what_the_facts_say(installed: SglangSources) -> None:
    built = build_matrix(installed)
    assert {entry.architecture: entry.reason for entry in built.red} == {}
    judged = [entry for entry in built.classes if entry.verdict != NOT_JUDGED]
    # The files of 29 setters; a release that loses most of them was not read.
    assert len({entry.setter for entry in judged}) >= 25
    for entry in judged:
        assert entry.reading.same_mechanism, f"{entry.architecture} captures nothing"


def test_every_architecture_of_the_facts_is_a_class_that_captures(installed: SglangSources) -> None:
    found = {cls.name for cls in installed.capturing_classes()}
    assert set(facts.MODEL_FILES) <= found
    assert set(RUNNABLE) <= found


def test_facts_that_are_wrong_are_red_and_name_the_class(
    installed: SglangSources, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = (facts.EngineRow("0.5.0", facts.LAST, AS_IS),)
    monkeypatch.setitem(facts.SGLANG_ROWS, "qwen3", wrong)
    built = build_matrix(installed, only=("Qwen3ForCausalLM", "Qwen2ForCausalLM"))
    assert [entry.architecture for entry in built.red] == ["Qwen3ForCausalLM"]


def test_the_command_runs_a_real_class_and_a_whole_engine() -> None:
    """On the class that is known to differ: its forward, and what reaches a draft in a running engine, say the same."""
    status, body = _harness("conformance", "--only", "Gemma3ForCausalLM", "--end-to-end")
    assert status == 0
    (entry,) = body["releases"][0]["classes"]
    assert (entry["obtained"], entry["verdict"]) == ("ran end to end", KNOWN_DIFFERENCE)
    rows = {row["asked"]: (row["captured"], row["obtained"]) for row in entry["rows"]}
    assert rows[WHOLE_ENGINE] == ([None, None, None], "ran end to end")
    assert rows["-1 for the embedding"] == ([0, None, None], "ran forward")


def test_a_class_that_dies_is_told_with_its_reason() -> None:
    """The process is gone as soon as the session is left, and its own last words are the reason."""
    with ForwardSession("LlamaForCausalLM") as session:
        child = session._child
        child.kill()
        child.wait()
        with pytest.raises(EngineError, match="LlamaForCausalLM's process ended with -9"):
            session.ask([1])
    assert not Path(f"/proc/{child.pid}").exists()
