"""The golden: its form, where it is looked for, what a crash leaves, and when recording refuses."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.commands.prepare import prepare
from harness.errors import InputError
from harness.files import write_atomically
from harness.golden.find import golden_folder, golden_in_use, recording_file
from harness.golden.schema import dump
from harness.golden.store import load_golden
from suites.support.command import Command
from suites.support.random_pair import PAIR, write_pair


def _golden_file(pair_file: Path) -> Path:
    return pair_file.parent / "golden" / "random" / "reference-cpu-float32.json"


def test_json_and_tensors_belong_together(recorded: Path) -> None:
    golden = load_golden(_golden_file(recorded))
    document = golden.document
    assert (golden.file.parent / document.tensors).is_file()
    assert document.pair == "random"
    assert document.wiring.boundaries == [0, 2, 4]
    assert document.commit is None
    for prompt in document.prompts:
        tensors = golden.tensors[prompt.id]
        assert len(tensors.continuation) == prompt.output
        assert tensors.proposals is not None
        assert tensors.logprobs is not None
        assert tensors.proposals.shape == tensors.logprobs.shape == (23, 4)
        assert np.isfinite(tensors.logprobs).any()


def test_the_json_is_one_line_a_prompt(recorded: Path) -> None:
    text = _golden_file(recorded).read_text()
    golden = load_golden(_golden_file(recorded))
    for prompt in golden.document.prompts:
        lines = [line for line in text.splitlines() if f'"id": "{prompt.id}"' in line]
        assert len(lines) == 1
        assert json.loads(lines[0].strip().rstrip(","))["histogram"] == prompt.histogram
    assert dump(golden.document).decode() == text


def test_recording_twice_changes_only_the_time_and_the_history(recorded: Path, harness: Command) -> None:
    before = json.loads(_golden_file(recorded).read_text())
    assert harness("record", recorded, "--reason", "again").status == 0
    after = json.loads(_golden_file(recorded).read_text())
    assert after["tensors"] == before["tensors"]
    assert list(after) == list(before)
    changed = {key for key in before if before[key] != after[key]}
    assert changed <= {"recorded_at", "reason", "history"}
    assert [entry["rate"] for entry in after["history"]] == [before["totals"]["rate"]]
    assert after["reason"] == "again"


def test_a_reason_may_be_any_text(recorded: Path, harness: Command) -> None:
    for reason in ("@prompts@", '"@history@"', "two\nlines", "{}"):
        assert harness("record", recorded, "--reason", reason).status == 0
        assert load_golden(_golden_file(recorded)).document.reason == reason


def test_history_keeps_every_floor(recorded: Path, harness: Command) -> None:
    assert harness("record", recorded, "--reason", "second").status == 0
    assert harness("record", recorded, "--reason", "third").status == 0
    history = load_golden(_golden_file(recorded)).document.history
    assert [entry.reason for entry in history] == ["first record", "second"]


def test_replacing_a_golden_needs_a_reason(recorded: Path, harness: Command) -> None:
    before = _golden_file(recorded).read_bytes()
    outcome = harness("record", recorded)
    assert outcome.status == 2
    assert "--reason" in outcome.err
    assert _golden_file(recorded).read_bytes() == before


def test_a_lower_floor_in_the_pair_file_does_not_hold(recorded: Path, harness: Command) -> None:
    golden = _golden_file(recorded)
    document = json.loads(golden.read_text())
    document["floor"] = 0.05
    golden.write_text(json.dumps(document))
    outcome = harness("check", recorded, "--json")
    assert outcome.json["detectors"]["acceptance"]["floor"] == 0.05
    assert any("the pair file's floor 0.00 is lower" in note for note in outcome.json["notes"])


def test_a_floor_above_the_recorded_rate_cannot_have_been_recorded(recorded: Path, harness: Command) -> None:
    golden = _golden_file(recorded)
    document = json.loads(golden.read_text())
    document["floor"] = 0.5
    golden.write_text(json.dumps(document))
    outcome = harness("check", recorded)
    assert outcome.status == 2
    assert "floor" in outcome.err


def _snapshot(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("crash", ["before the tensors", "before the json", "before the removal"])
def test_a_crash_at_any_step_leaves_a_valid_golden(
    recorded: Path, harness: Command, monkeypatch: pytest.MonkeyPatch, crash: str
) -> None:
    file = _golden_file(recorded)
    old = load_golden(file)
    write, calls = write_atomically, 0

    def broken(path: Path, data: bytes) -> None:
        nonlocal calls
        calls += 1
        if calls == {"before the tensors": 1, "before the json": 2}.get(crash):
            raise KeyboardInterrupt
        write(path, data)

    def interrupted(_leftovers: Any, _written: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.golden.store.write_atomically", broken)
    if crash == "before the removal":
        monkeypatch.setattr("harness.golden.store._Leftovers.remove", interrupted)
    text = recorded.read_text()
    # Other settings, so that the new tensors have another hash than the old ones.
    recorded.write_text(text.replace("max_new_tokens = 24", "max_new_tokens = 20"))
    assert harness("record", recorded, "--reason", "crash").status == 130
    monkeypatch.undo()
    golden = load_golden(file)
    if crash == "before the removal":
        assert golden.document.reason == "crash"
    else:
        assert golden.document == old.document
    assert not list(file.parent.glob("*.part"))


def test_old_tensors_are_removed_and_other_goldens_kept(recorded: Path, harness: Command) -> None:
    folder = _golden_file(recorded).parent
    assert harness("record", recorded, "--dtype", "float64").status == 0
    assert {file.name for file in folder.glob("*.json")} == {
        "reference-cpu-float32.json",
        "reference-cpu-float64.json",
    }
    kept = load_golden(folder / "reference-cpu-float64.json")
    old = load_golden(folder / "reference-cpu-float32.json").document.tensors
    recorded.write_text(recorded.read_text().replace("max_new_tokens = 24", "max_new_tokens = 20"))
    assert harness("record", recorded, "--reason", "shorter").status == 0
    assert not (folder / old).exists()
    assert load_golden(kept.file).document == kept.document


def test_own_class_first_and_the_default_class_is_said(recorded: Path, harness: Command) -> None:
    outcome = harness("check", recorded, "--dtype", "float64", "--json")
    assert outcome.json["golden"].endswith("reference-cpu-float32.json")
    assert any("reference-cpu-float32" in note for note in outcome.json["notes"])
    assert harness("record", recorded, "--dtype", "float64").status == 0
    outcome = harness("check", recorded, "--dtype", "float64", "--json")
    assert outcome.json["golden"].endswith("reference-cpu-float64.json")
    assert outcome.json["verdict"] == "pass"


def test_bfloat16_against_the_float32_golden_is_compared_and_said(recorded: Path, harness: Command) -> None:
    outcome = harness("check", recorded, "--dtype", "bfloat16", "--json")
    body = outcome.json
    assert body["detectors"]["target"]["decides"] is False
    assert body["detectors"]["target"]["verdict"] == "pass"
    assert body["detectors"]["proposals"]["noise_floor"] > 0
    assert body["detectors"]["proposals"]["verdict"] == "pass"


def test_golden_folder_by_key_upward_and_builtin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_pair(tmp_path / "a" / "b")
    pair = prepare(file)
    assert recording_file(pair).parent == file.parent.resolve() / "golden" / "random"
    (tmp_path / "golden").mkdir()
    assert recording_file(pair).parent == tmp_path / "golden" / "random"
    file.write_text('golden = "elsewhere"\n' + PAIR)
    assert golden_folder(prepare(file)) == file.parent / "elsewhere" / "random"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="has no golden"):
        golden_in_use(prepare(file))


def test_a_copied_pair_finds_the_builtin_golden_by_name(tmp_path: Path) -> None:
    file = write_pair(tmp_path)
    file.write_text(PAIR.replace('"random"', '"tiny"', 1))
    folder = golden_folder(prepare(file))
    assert folder is not None
    assert folder.name == "tiny"
    assert tmp_path not in folder.parents


def _refusal(file: Path, harness: Command) -> str:
    before = _snapshot(file.parent)
    outcome = harness("record", file)
    assert outcome.status == 2, outcome
    assert _snapshot(file.parent) == before
    return outcome.err


def test_record_refuses_a_rate_below_the_floor(tmp_path: Path, harness: Command) -> None:
    file = write_pair(tmp_path, pair=PAIR.replace("floor = 0.0", "floor = 0.9"))
    assert "below the floor" in _refusal(file, harness)


def test_record_refuses_a_floor_that_chance_decides(tmp_path: Path, harness: Command) -> None:
    file = write_pair(tmp_path, pair=PAIR.replace("floor = 0.0", "floor = 0.07"))
    assert "chance would decide" in _refusal(file, harness)


def test_record_refuses_loops(tmp_path: Path, harness: Command) -> None:
    file = write_pair(tmp_path, target_seed=0)
    assert "loops" in _refusal(file, harness)


def test_record_refuses_when_nothing_is_measured(tmp_path: Path, harness: Command) -> None:
    file = write_pair(tmp_path, pair=PAIR.replace("max_new_tokens = 24", "max_new_tokens = 1"))
    assert "nothing was measured" in _refusal(file, harness)


def test_record_refuses_a_broken_contract(tmp_path: Path, harness: Command) -> None:
    file = write_pair(tmp_path, pair=PAIR.replace("[decode]", 'served_by = "eagle"\n[decode]'))
    config = tmp_path / "draft" / "config.json"
    config.write_text(config.read_text().replace("[-1, 1, 3]", "[0, 1, 3]"))
    assert "contract is broken" in _refusal(file, harness)


def test_record_measures_a_noise_floor_for_both_dtypes(recorded: Path) -> None:
    noise = load_golden(_golden_file(recorded)).document.noise
    assert set(noise) == {"float32", "bfloat16"}
    assert [arm.how for arm in noise["float32"].arms] == [
        "states off by up to 2 units in the last place, seed 1",
        "states off by up to 2 units in the last place, seed 2",
        "every prompt alone",
        "eager attention",
    ]
    assert all(arm.windows == 6 * 6 and len(arm.by_prompt or ()) == 6 for arm in noise["float32"].arms)
    (bfloat16,) = noise["bfloat16"].arms
    assert bfloat16.how == "computed in bfloat16, recorded in float32"
    assert bfloat16.changed > 0
    assert bfloat16.evaluated == sum(prompt.output for prompt in load_golden(_golden_file(recorded)).document.prompts)


def test_a_golden_in_half_precision_is_measured_against_float32(recorded: Path, harness: Command) -> None:
    assert harness("record", recorded, "--dtype", "float16", "--skip-loops").status == 0
    noise = load_golden(_golden_file(recorded).with_name("reference-cpu-float16.json")).document.noise
    assert [arm.how for arm in noise["float16"].arms][-2:] == [
        "eager attention",
        "computed in float32, recorded in float16",
    ]
    assert [arm.how for arm in noise["float32"].arms] == ["computed in float32, recorded in float16"]


def test_tensors_of_another_golden_are_refused(recorded: Path) -> None:
    golden = load_golden(_golden_file(recorded))
    tensors = golden.file.parent / golden.document.tensors
    data = bytearray(tensors.read_bytes())
    data[-3] ^= 1
    tensors.write_bytes(bytes(data))
    with pytest.raises(InputError, match="not the ones that were recorded"):
        load_golden(golden.file)


def test_permissions_are_those_of_an_ordinary_file(recorded: Path) -> None:
    umask = os.umask(0)
    os.umask(umask)
    for file in _golden_file(recorded).parent.iterdir():
        assert file.stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_moved_golden_still_reads(recorded: Path, tmp_path: Path) -> None:
    shutil.copytree(_golden_file(recorded).parent, tmp_path / "moved")
    assert load_golden(tmp_path / "moved" / "reference-cpu-float32.json").document.pair == "random"
