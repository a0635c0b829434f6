"""`harness conformance` on model files written here: rules that changed, classes that lie, and what is known."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from harness.conformance import forward, matrix
from harness.conformance.asked import WHOLE_ENGINE, AskedIds, asked_lists
from harness.conformance.matrix import Facts, ForwardAnswer, build_matrix
from harness.facts import known
from harness.facts.known import KNOWN, find_known, not_judged
from harness.facts.reading.setters import CaptureOutcome
from harness.facts.sglang import LAST
from suites.support.command import Command
from suites.support.sglang_release import (
    LLAMA,
    read_release,
    write_model,
    write_release,
    write_setter,
)

CHANGED = {
    "as is": write_setter("list(layer_ids)"),
    "plus two": write_setter("[val + 2 for val in layer_ids]"),
    "default shifted": write_setter(default="[3, num_layers // 2 + 1, num_layers - 2]"),
    "first id decides": write_setter("[val + 1 for val in layer_ids] if layer_ids[0] == 1 else list(layer_ids)"),
    "last id decides": write_setter("list(layer_ids) if max(layer_ids) == 8 else [val + 1 for val in layer_ids]"),
}


@pytest.mark.parametrize("change", CHANGED)
def test_a_changed_rule_is_red_and_names_the_class(change: str, tmp_path: Path, harness: Command) -> None:
    models = {
        "llama": write_model("LlamaForCausalLM", CHANGED[change]),
        "qwen2": write_model("Qwen2ForCausalLM", write_setter()),
    }
    outcome = harness("conformance", "--sglang", write_release(tmp_path, **models), "--no-forward", "--json")
    assert outcome.status == 1
    verdicts = {entry["architecture"]: entry["verdict"] for entry in outcome.json["releases"][0]["classes"]}
    assert verdicts == {"LlamaForCausalLM": "differs", "Qwen2ForCausalLM": "agrees"}
    told = harness("conformance", "--sglang", tmp_path, "--no-forward")
    assert "LlamaForCausalLM (llama.py: LlamaForCausalLM): differs" in told.out
    assert "Qwen2ForCausalLM (" not in told.out


def test_the_rules_as_they_are_pass(tmp_path: Path, harness: Command) -> None:
    outcome = harness("conformance", "--sglang", write_release(tmp_path, llama=LLAMA), "--no-forward", "--json")
    assert outcome.status == 0
    (release,) = outcome.json["releases"]
    (entry,) = release["classes"]
    assert (release["sglang"], release["judged_as"]) == (LAST, LAST)
    assert (entry["verdict"], entry["obtained"], entry["same_mechanism"]) == ("agrees", "setter only", True)
    assert len(entry["rows"]) == len(asked_lists())
    # Told on stderr as it goes, so that stdout stays one JSON object.
    assert "LlamaForCausalLM" in outcome.err


def test_a_newer_release_is_held_against_the_newest_facts(tmp_path: Path) -> None:
    built = build_matrix(read_release(tmp_path / "same", "0.6.1", llama=LLAMA))
    assert (built.version, built.judged_as, built.red) == ("0.6.1", LAST, [])
    changed = build_matrix(
        read_release(tmp_path / "new", "0.6.1", llama=write_model("LlamaForCausalLM", write_setter("layer_ids")))
    )
    assert [entry.architecture for entry in changed.red] == ["LlamaForCausalLM"]


def test_a_class_without_facts_is_red(tmp_path: Path) -> None:
    unknown = build_matrix(read_release(tmp_path / "a", novel=write_model("NovelForCausalLM", write_setter()))).classes[
        0
    ]
    assert unknown.verdict == matrix.NO_FACTS
    # DeepSeek has rows, and none for this release.
    early = build_matrix(
        read_release(tmp_path / "b", "0.5.3", deepseek_v2=write_model("DeepseekV2ForCausalLM", write_setter()))
    )
    assert early.classes[0].verdict == matrix.NO_FACTS
    assert "0.5.5 to 0.5.12" in str(early.classes[0].reason)


@pytest.mark.parametrize("name", ["LlamaForCausalLMEagle3", "DeepseekV3ForCausalLMNextN", "EmbeddingGemmaModel"])
def test_drafts_and_embedders_are_listed_and_not_judged(name: str, tmp_path: Path) -> None:
    model = LLAMA + f"class {name}(LlamaForCausalLM):\n    pass\nEntryClass = [LlamaForCausalLM, {name}]\n"
    model = model.replace("EntryClass = LlamaForCausalLM\n", "")
    verdicts = {
        entry.architecture: entry.verdict for entry in build_matrix(read_release(tmp_path, llama=model)).classes
    }
    assert verdicts == {"LlamaForCausalLM": matrix.AGREES, name: matrix.NOT_JUDGED}


GEMMA_LOOP = """
    def forward(self, input_ids):
        aux, residual = [], None
        for i, layer in enumerate(self.layers):
            if i in self.layers_to_capture:
                aux.append(hidden_states)
            hidden_states, residual = layer(hidden_states, residual)
        if num_layers in self.layers_to_capture:
            aux.append(hidden_states)
        return hidden_states, aux
"""


def test_a_known_difference_is_told_with_its_evidence_and_is_not_red(tmp_path: Path, harness: Command) -> None:
    folder = write_release(tmp_path, gemma3_causal=write_model("Gemma3ForCausalLM", write_setter(), GEMMA_LOOP))
    outcome = harness("conformance", "--sglang", folder, "--json")
    assert outcome.status == 0
    entry = outcome.json["releases"][0]["classes"][0]
    assert entry["verdict"] == "differs: known"
    assert "sglang#39286" in entry["evidence"]
    rows = {row["asked"]: row for row in entry["rows"]}
    assert rows["first id 1"]["captured"] == [None, None, None]
    assert rows["-1 for the embedding"]["captured"] == [0, None, None]


def test_a_known_difference_that_is_gone_is_red(tmp_path: Path, harness: Command) -> None:
    loop = GEMMA_LOOP.replace(
        "hidden_states, residual = layer(hidden_states, residual)", "hidden_states = layer(hidden_states)"
    )
    folder = write_release(tmp_path, gemma3_causal=write_model("Gemma3ForCausalLM", write_setter(), loop))
    outcome = harness("conformance", "--sglang", folder)
    assert outcome.status == 1
    assert "known difference is gone" in outcome.out
    # A release before it had none, and is held against that.
    assert (
        harness(
            "conformance",
            "--sglang",
            write_release(
                tmp_path / "old", "0.5.16", gemma3_causal=write_model("Gemma3ForCausalLM", write_setter(), loop)
            ),
        ).status
        == 0
    )


def test_a_known_difference_does_not_excuse_another(tmp_path: Path) -> None:
    setter = write_setter("[val + 2 for val in layer_ids]")
    loop = GEMMA_LOOP.replace(
        "aux.append(hidden_states)\n            hidden", "aux.append(hidden_states + residual)\n            hidden"
    )
    sources = read_release(tmp_path, gemma3_causal=write_model("Gemma3ForCausalLM", setter, loop))
    assert [entry.verdict for entry in build_matrix(sources).classes] == [matrix.DIFFERS]


def test_known_differences_name_classes_that_the_facts_know() -> None:
    for fault in KNOWN:
        for architecture in fault.classes:
            for version in (fault.first, fault.last):
                assert find_known(architecture, version) is fault
                assert matrix.missing_facts(architecture, version) is None
                assert not_judged(architecture) is None
    assert find_known("Gemma3ForCausalLM", "0.5.16") is None
    assert find_known("Qwen3_5ForConditionalGeneration", "0.5.22") is None


@pytest.mark.parametrize(
    ("facts", "outcome", "agrees"),
    [
        (Facts((2, 4)), CaptureOutcome((2, 4)), True),
        (Facts((2, 4)), CaptureOutcome((4, 2)), False),
        (Facts((2, 4)), CaptureOutcome((2, None)), False),
        (Facts((2, 4)), CaptureOutcome(None, "raises"), False),
        (Facts((2, 4), ("order",)), CaptureOutcome(None, "raises"), True),
        (Facts((2, 4), ("order",)), CaptureOutcome((2,)), False),
        (Facts(None, refused="no", meant=(0, 2)), CaptureOutcome(None, "raises"), True),
        (Facts(None, refused="no", meant=(0, 2)), CaptureOutcome((2,)), True),
        (Facts(None, refused="no", meant=(0, 2)), CaptureOutcome((0, 2)), False),
        (Facts(None, refused="no", meant=(-1, 2)), CaptureOutcome((2, 7)), True),
        (Facts(None, refused="no", meant=(-1, 2)), CaptureOutcome((3, 7)), False),
        (Facts(None, refused="no", meant=(3, 5, 9)), CaptureOutcome((2, 4)), False),
        (Facts(None, refused="no", meant=(3, 5, 9)), CaptureOutcome((3, 5)), True),
    ],
)
def test_what_counts_as_agreement(facts: Facts, outcome: CaptureOutcome, agrees: bool) -> None:
    assert facts.agrees(outcome) is agrees


def test_a_forward_that_ran_is_believed_over_the_setter(tmp_path: Path) -> None:
    sources = read_release(tmp_path, llama=LLAMA)

    def moved(architecture: str, asked: Any) -> ForwardAnswer:
        assert architecture == "LlamaForCausalLM"
        return ForwardAnswer({entry.name: CaptureOutcome((1,)) for entry in asked})

    entry = build_matrix(sources, forwards=moved).classes[0]
    assert (entry.obtained, entry.verdict) == ("ran forward", matrix.DIFFERS)

    def failed(_architecture: str, asked: Any) -> ForwardAnswer:
        return ForwardAnswer({asked[0].name: CaptureOutcome((2, 4, 5))}, "the process ended")

    entry = build_matrix(sources, forwards=failed).classes[0]
    assert (entry.obtained, entry.verdict, entry.reason) == ("ran forward", matrix.AGREES, "the process ended")
    assert [row.obtained for row in entry.rows] == ["ran forward"] + ["setter only"] * (len(entry.rows) - 1)


@pytest.mark.parametrize(("received", "verdict"), [((2, 4, 7), matrix.AGREES), ((2, 4, 8), matrix.DIFFERS)])
def test_what_a_whole_engine_hands_on_is_believed_first(
    received: tuple[int, ...], verdict: str, tmp_path: Path
) -> None:
    def handed(_architecture: str, asked: Any) -> ForwardAnswer:
        assert {entry.name: entry.ids for entry in asked}[WHOLE_ENGINE] == (1, 3, 6)
        return ForwardAnswer({WHOLE_ENGINE: CaptureOutcome((2, 4, 7))}, whole={WHOLE_ENGINE: CaptureOutcome(received)})

    entry = build_matrix(read_release(tmp_path, llama=LLAMA), forwards=handed).classes[0]
    assert (entry.obtained, entry.verdict) == ("ran end to end", verdict)
    rows = {row.asked.name: row for row in entry.rows}
    assert (rows[WHOLE_ENGINE].obtained, rows[WHOLE_ENGINE].outcome) == ("ran end to end", CaptureOutcome(received))
    assert {row.obtained for name, row in rows.items() if name != WHOLE_ENGINE} == {"setter only"}


def test_a_forward_that_differs_is_not_hidden_by_a_whole_engine_that_agrees(tmp_path: Path) -> None:
    def both(_architecture: str, _asked: Any) -> ForwardAnswer:
        return ForwardAnswer({WHOLE_ENGINE: CaptureOutcome((2,))}, whole={WHOLE_ENGINE: CaptureOutcome((2, 4, 7))})

    entry = build_matrix(read_release(tmp_path, llama=LLAMA), forwards=both).classes[0]
    assert entry.verdict == matrix.DIFFERS
    (row,) = [row for row in entry.rows if row.verdict == matrix.DIFFERS]
    assert (row.obtained, row.outcome) == ("ran forward", CaptureOutcome((2,)))


def test_the_markdown_says_everything_and_names_no_place_of_the_machine(tmp_path: Path, harness: Command) -> None:
    gemma = write_model("Gemma3ForCausalLM", write_setter(), GEMMA_LOOP)
    draft = LLAMA.replace(
        "EntryClass = LlamaForCausalLM",
        "class LlamaEagle(LlamaForCausalLM):\n    pass\nEntryClass = [LlamaForCausalLM, LlamaEagle]",
    )
    folder = write_release(
        tmp_path / "release", llama=draft, qwen2=write_model("Qwen2ForCausalLM", write_setter()), gemma3_causal=gemma
    )
    file = tmp_path / "docs.md"
    assert harness("conformance", "--sglang", folder, "--markdown", file).status == 0
    text = file.read_text()
    assert f"## sglang {LAST}" in text
    assert "`harness conformance --sglang release --markdown docs.md`" in text
    for part in (
        "LlamaForCausalLM",
        "Qwen2ForCausalLM",
        "Gemma3ForCausalLM",
        "sglang#39286",
        "LlamaEagle: it is a draft",
    ):
        assert part in text
    assert "*none*, *none*, *none*" in text
    assert "0, 2, 4" in text
    assert str(tmp_path) not in text


def test_a_wheel_is_read_as_a_folder_is(tmp_path: Path, harness: Command) -> None:
    folder = write_release(tmp_path / "unpacked", "0.5.12", qwen2=write_model("Qwen2ForCausalLM", write_setter()))
    wheel = tmp_path / "sglang-0.5.12-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in (folder / "sglang").rglob("*.py"):
            archive.write(file, file.relative_to(folder))
    outcome = harness("conformance", "--sglang", wheel, "--sglang", folder, "--json")
    assert outcome.status == 0
    one, other = outcome.json["releases"]
    assert (one["sglang"], one["classes"]) == ("0.5.12", other["classes"])


def test_bad_input_is_told(tmp_path: Path, harness: Command) -> None:
    (tmp_path / "empty").mkdir()
    other = tmp_path / "other-1.0-py3-none-any.whl"
    broken = tmp_path / "sglang-0.5.12-py3-none-any.whl"
    other.write_bytes(b"")
    broken.write_bytes(b"no zip")
    folder = write_release(tmp_path / "release", llama=LLAMA)
    nameless = write_release(tmp_path / "nameless", llama=LLAMA)
    (nameless / "sglang" / "_version.py").write_text("")
    wrong = write_release(tmp_path / "wrong", llama="class Llama(:\n")
    for arguments, told in (
        (["--sglang", tmp_path / "empty"], "srt/models"),
        (["--sglang", tmp_path / "missing"], "srt/models"),
        (["--sglang", other], "found other"),
        (["--sglang", broken], "cannot be read"),
        (["--sglang", nameless], "_version.py"),
        (["--sglang", wrong], "cannot be parsed"),
        (["--sglang", folder, "--only", "MambaForCausalLM"], "expected LlamaForCausalLM"),
        (["--sglang", folder, "--markdown", other / "docs.md"], "other-1.0"),
    ):
        outcome = harness("conformance", *arguments, "--json")
        assert outcome.status == 2, (arguments, outcome.err)
        assert told in outcome.json["error"]["message"]


@pytest.mark.parametrize("arguments", [[], ["--forward", "--sglang", "here"]])
def test_without_sglang_a_release_must_be_given(
    arguments: list[str], tmp_path: Path, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.facts.reading.sources.find_installed", lambda: None)
    write_release(tmp_path / "here", llama=LLAMA)
    monkeypatch.chdir(tmp_path)
    outcome = harness("conformance", *arguments, "--json")
    assert outcome.status == 2
    assert "sglang is not installed" in outcome.json["error"]["message"]


def test_the_forward_runs_only_for_the_files_that_are_installed(
    tmp_path: Path, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = write_release(tmp_path / "installed", llama=LLAMA)
    monkeypatch.setattr("harness.facts.reading.sources.find_installed", lambda: installed / "sglang")
    monkeypatch.setattr("harness.engines.sglang.installed.cpu_environment", dict)
    asked: list[tuple[str, bool]] = []

    def ran(architecture: str, lists: tuple[AskedIds, ...], *, whole: bool) -> ForwardAnswer:
        asked.append((architecture, whole))
        return ForwardAnswer({entry.name: CaptureOutcome(None, "it raised") for entry in lists})

    monkeypatch.setattr(forward, "run_forwards", ran)
    other = write_release(tmp_path / "other", llama=LLAMA + "# changed\n")
    assert harness("conformance", "--sglang", other).status == 0
    assert harness("conformance", "--no-forward").status == 0
    assert asked == []
    assert harness("conformance").status == 1
    assert harness("conformance", "--end-to-end").status == 1
    assert asked == [("LlamaForCausalLM", False), ("LlamaForCausalLM", True)]


def test_without_the_platform_for_it_no_class_is_run(
    tmp_path: Path, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = write_release(tmp_path / "installed", llama=LLAMA)
    monkeypatch.setattr("harness.facts.reading.sources.find_installed", lambda: installed / "sglang")
    monkeypatch.setattr("harness.engines.sglang.installed._CPU_PLATFORM", "no_such_platform")
    outcome = harness("conformance", "--json")
    assert outcome.status == 0
    assert "no class is run: SGLang runs on a CPU only by a platform plugin" in outcome.err
    assert outcome.json["releases"][0]["obtained"] == {"setter only": 1}
    for asked in ("--forward", "--end-to-end"):
        outcome = harness("conformance", asked, "--json")
        assert outcome.status == 2
        assert "plugins/sglang-cpu" in outcome.json["error"]["message"]


def test_reading_a_release_imports_nothing_of_it(tmp_path: Path) -> None:
    folder = write_release(tmp_path, llama="raise SystemExit('imported')\n" + LLAMA)
    code = f"""
import json, sys
from pathlib import Path
from harness.facts.reading.sources import read_sources
from harness.conformance.matrix import build_matrix
verdicts = [entry.verdict for entry in build_matrix(read_sources(Path({str(folder)!r}))).classes]
print(json.dumps([verdicts, "sglang" in sys.modules, "torch" in sys.modules]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert json.loads(done.stdout or "null") == [["agrees"], False, False], done.stderr


def test_known_is_used_by_the_matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its entry, the same class is red."""
    monkeypatch.setattr(known, "KNOWN", ())
    sources = read_release(tmp_path, gemma3_causal=write_model("Gemma3ForCausalLM", write_setter(), GEMMA_LOOP))
    assert [entry.verdict for entry in build_matrix(sources).red] == [matrix.DIFFERS]
