"""What a golden of each version says, what it leaves unknown, and how a check reads it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from harness.golden.schema import dump
from harness.golden.store import load_golden
from suites.support.builtin_pairs import FIXTURES, copy_pair
from suites.support.command import Command
from suites.support.random_pair import write_pair

EOS = 5


def _edit(file: Path, **changes: Any) -> None:
    body = json.loads(file.read_text())
    file.write_text(json.dumps(body | changes))


def _golden(pair_file: Path) -> Path:
    return pair_file.parent / "golden" / "random" / "reference-cpu-float32.json"


def _ends_at(pair_file: Path, ids: list[int] | None) -> None:
    for name in ("generation_config.json", "config.json"):
        _edit(pair_file.parent / "target" / name, eos_token_id=ids)


def _as_version_1(golden: Path) -> None:
    """Write a golden as version 1 wrote it."""
    document = load_golden(golden).document
    golden.write_bytes(dump(document.model_copy(update={"schema_version": 1})))
    assert "eos_ids" not in json.loads(golden.read_text())


@pytest.fixture
def ending(tmp_path: Path, harness: Command) -> Path:
    """A recorded random pair, some of whose texts end at EOS."""
    file = write_pair(tmp_path / "pair", eos=EOS)
    _ends_at(file, [EOS])
    assert harness("record", file, "--skip-loops").status == 0
    prompts = harness("golden", "show", file, "--json").json["by_prompt"]
    assert any(prompt["eos_round"] is not None for prompt in prompts)
    return file


# Token 3 occurs in the recorded texts, token 60 does not.
@pytest.mark.parametrize(
    "ids", [[EOS, 3], [EOS, 60], [60], None], ids=["added", "added, unused", "replaced", "removed"]
)
def test_other_end_of_text_ids_are_refused_with_the_reason(
    ending: Path, harness: Command, ids: list[int] | None
) -> None:
    _ends_at(ending, ids)
    outcome = harness("check", ending)
    assert outcome.status == 2
    assert "the golden was recorded with other end-of-text ids" in outcome.err
    assert "eos_ids" in outcome.err
    assert f"found [{EOS}]" in outcome.err
    assert f"expected {sorted(ids or [])}" in outcome.err
    assert harness("golden", "verify", ending).status == 1


@pytest.mark.parametrize(
    ("ids", "problem"),
    [
        ([EOS, 3], "goes on after token 3"),
        ([60], "ends at token 5, which does not end a text today"),
        ([EOS, 60], None),
        ([EOS], None),
    ],
    ids=["added", "replaced", "added, unused", "the same"],
)
def test_version_1_refuses_ids_that_its_texts_contradict(
    ending: Path, harness: Command, ids: list[int], problem: str | None
) -> None:
    _as_version_1(_golden(ending))
    _ends_at(ending, ids)
    outcome = harness("check", ending, "--json")
    if problem is None:
        assert (outcome.status, outcome.json["verdict"]) == (0, "pass")
        assert any("of version 1, which does not say which ids end a text" in note for note in outcome.json["notes"])
        return
    assert outcome.status == 2
    assert problem in outcome.err


@pytest.mark.parametrize("name", ["tiny", "tiny-embedding"])
def test_goldens_that_version_1_recorded_are_read_for_good(name: str, tmp_path: Path, harness: Command) -> None:
    """`fixtures/golden-v1` was written by the release before version 2 and is never recorded again."""
    file = copy_pair(tmp_path, name)
    file.write_text(f'golden = "{FIXTURES / "golden-v1"}"\n' + file.read_text())
    assert json.loads((FIXTURES / "golden-v1" / name / "reference-cpu-float32.json").read_text())["schema_version"] == 1
    outcome = harness("check", file, "--json")
    assert (outcome.status, outcome.json["verdict"]) == (0, "pass")
    assert Path(outcome.json["golden"]).is_relative_to(FIXTURES / "golden-v1")
    assert {found["verdict"] for found in outcome.json["detectors"].values()} <= {"pass", "not_applicable"}
    assert harness("golden", "verify", file).status == 0
    assert "unknown, as in version 1" in harness("golden", "show", file).out


def test_what_version_2_says(recorded: Path, harness: Command) -> None:
    _ends_at(recorded, [EOS])
    assert harness("record", recorded, "--reason", "with an end", "--skip-loops").status == 0
    body = json.loads(_golden(recorded).read_text())
    assert body["schema_version"] == 2
    assert body["eos_ids"] == [EOS]
    assert (_golden(recorded).parent / body["pair_file"]).samefile(recorded)
    assert {"torch", "transformers", "tokenizers", "python"} <= set(body["versions"])


def test_a_version_2_without_its_fields_is_refused(recorded: Path, harness: Command) -> None:
    golden = _golden(recorded)
    body = json.loads(golden.read_text())
    del body["eos_ids"]
    golden.write_text(json.dumps(body))
    outcome = harness("check", recorded)
    assert outcome.status == 2
    assert "eos_ids is missing, which version 2 has" in outcome.err


@pytest.mark.parametrize("library", ["torch", "transformers", "tokenizers"])
def test_a_check_under_another_library_says_so(recorded: Path, harness: Command, library: str) -> None:
    golden = _golden(recorded)
    versions = json.loads(golden.read_text())["versions"]
    _edit(golden, versions=versions | {library: "0.0.1", "python": "2.7"})
    notes = harness("check", recorded, "--json").json["notes"]
    (note,) = [note for note in notes if "the golden was recorded with" in note]
    assert note.startswith(f"the golden was recorded with {library} 0.0.1, this run has {library} ")
    # The same libraries: nothing is said.
    _edit(golden, versions=versions)
    assert not any(
        "the golden was recorded with" in note for note in harness("check", recorded, "--json").json["notes"]
    )


# Files that transformers and the harness read besides config.json and safetensors.
@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer.model", "merges.txt", "vocab.txt", "vocab.json"])
@pytest.mark.parametrize("folder", ["target", "draft"])
def test_every_file_that_a_measurement_reads_is_hashed(
    recorded: Path, harness: Command, name: str, folder: str
) -> None:
    file = recorded.parent / folder / name
    file.write_text("{}")
    assert harness("record", recorded, "--reason", "with it").status == 0
    assert f"{folder}/{name}" in json.loads(_golden(recorded).read_text())["hashes"]
    file.write_text("{ }")
    assert (
        f"{folder}/{name} has changed since the golden was recorded"
        in harness("check", recorded, "--json").json["notes"]
    )
    file.unlink()
    assert f"{folder}/{name} is absent now" in harness("check", recorded, "--json").json["notes"]


def test_a_new_file_was_absent(recorded: Path, harness: Command) -> None:
    (recorded.parent / "target" / "chat_template.jinja").write_text("{{ messages }}")
    note = "target/chat_template.jinja was absent when the golden was recorded"
    assert note in harness("check", recorded, "--json").json["notes"]
    _as_version_1(_golden(recorded))
    # Version 1 did not look at such files, so it does not know.
    assert note not in harness("check", recorded, "--json").json["notes"]


def test_weights_in_bin_files_are_hashed(recorded: Path, harness: Command) -> None:
    folder = recorded.parent / "target"
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    assert harness("record", recorded, "--reason", "pickles").status == 0
    hashes = json.loads(_golden(recorded).read_text())["hashes"]
    assert "target/pytorch_model.bin" in hashes
    torch.save({name: tensor * 1 for name, tensor in reversed(tensors.items())}, folder / "pytorch_model.bin")
    notes = harness("check", recorded, "--json").json["notes"]
    assert "target/pytorch_model.bin has changed since the golden was recorded" in notes


def test_other_formats_next_to_the_weights_are_not_read(recorded: Path, harness: Command) -> None:
    before = harness("check", recorded, "--json").json["notes"]
    for name in ("model.gguf", "pytorch_model.bin", "README.md", "model.onnx"):
        (recorded.parent / "target" / name).write_bytes(b"something else")
    assert harness("check", recorded, "--json").json["notes"] == before


def test_goldens_are_chosen_in_the_written_order(recorded: Path, harness: Command, tmp_path: Path) -> None:
    """The run's own class first, then the nearest."""
    folder = recorded.parent / "golden" / "random"
    assert harness("record", recorded, "--dtype", "float64").status == 0
    chosen = []
    for name in ("reference-cpu-float64.json", "reference-cpu-float32.json"):
        body = harness("check", recorded, "--dtype", "float64", "--json").json
        chosen.append(Path(body["golden"]).name)
        says = any("compared with the margin of" in note for note in body["notes"])
        assert says == (name != "reference-cpu-float64.json")
        shutil.move(folder / name, tmp_path)
    assert chosen == ["reference-cpu-float64.json", "reference-cpu-float32.json"]
    outcome = harness("check", recorded, "--dtype", "float64")
    assert outcome.status == 2
    assert "the pair has no golden" in outcome.err
    assert f"harness record {recorded} --dtype float64" in outcome.err
