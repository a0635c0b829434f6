"""A folder of goldens is the user's: it may contain anything, and several processes may write into it at once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.files import write_atomically
from harness.golden.store import golden_files, load_golden
from suites.support.builtin_pairs import ROOT
from suites.support.command import Command
from suites.support.random_pair import PAIR
from suites.support.saving import prepared

CLASSES = ("float32", "float64", "bfloat16")
PROCESSES, SAVES = 30, 4


def _strangers(folder: Path) -> dict[str, bytes]:
    """Put other people's files into a folder, some of them named much like the harness' own; return what they hold."""
    folder.mkdir(parents=True, exist_ok=True)
    # Named by a hash, but not of its content; named by the hash of its content, but not by the harness.
    content = b"weights of somebody else"
    own_hash = "5d3bc0ab74f0e52b1b9b1aa1d4d2e1a2a9e3bb2a3b1f6c8f8d1b7e0c4f5a6b7c"
    files = {
        "model.safetensors": b"a draft",
        "model-00001-of-00002.safetensors": b"a shard",
        f"{own_hash}.safetensors": content,
        "pytorch_model.bin": b"a pickle",
        "notes.json": b"{}",
        "my-own-float32.json.bak": b"a copy",
        "reference-cpu-float32.json.orig": b"an editor's",
        ".model.safetensors.x1.part": b"a download of somebody else",
        "README.md": b"read me",
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return files


def _require_untouched(folder: Path, strangers: dict[str, bytes]) -> None:
    for name, data in strangers.items():
        assert (folder / name).read_bytes() == data, name


def _unnamed(folder: Path, strangers: dict[str, bytes]) -> set[str]:
    """Return the files of a folder that are neither goldens, nor their tensors, nor strangers, nor the lock."""
    goldens = golden_files(folder)
    named = {load_golden(file).document.tensors for file in goldens} | {file.name for file in goldens}
    return {file.name for file in folder.iterdir()} - named - set(strangers) - {".lock"}


def test_a_draft_in_the_folder_of_goldens_survives(recorded: Path, harness: Command) -> None:
    """`golden = "checkpoints"` and the draft in `checkpoints/random`: the golden's folder is the draft's."""
    home = recorded.parent / "checkpoints"
    home.mkdir()
    (recorded.parent / "draft").rename(home / "random")
    text = PAIR.replace('"draft"', '"checkpoints/random"')
    recorded.write_text(f'golden = "checkpoints"\n{text}')
    weights = (home / "random" / "model.safetensors").read_bytes()
    for reason in ("first", "second"):
        assert harness("record", recorded, "--reason", reason).status == 0
        assert (home / "random" / "model.safetensors").read_bytes() == weights
    assert harness("check", recorded).status == 0


def test_strangers_survive_a_record_and_the_old_tensors_do_not(recorded: Path, harness: Command) -> None:
    folder = recorded.parent / "golden" / "random"
    strangers = _strangers(folder)
    old = load_golden(folder / "reference-cpu-float32.json").document.tensors
    recorded.write_text(recorded.read_text().replace("max_new_tokens = 24", "max_new_tokens = 20"))
    assert harness("record", recorded, "--reason", "shorter").status == 0
    _require_untouched(folder, strangers)
    assert not (folder / old).exists()
    assert not _unnamed(folder, strangers)


def test_strangers_survive_an_update(recorded: Path, pytester: pytest.Pytester) -> None:
    strangers = _strangers(recorded.parent / "golden" / "random")
    config = recorded.parent / "draft" / "config.json"
    config.write_text(config.read_text().replace("[-1, 1, 3]", "[-1, 1, 2]"))
    options = ("-p", "no:cacheprovider", "--acceptance-update", "--acceptance-reason", "other ids")
    result = pytester.runpytest_inprocess(*options, recorded)
    result.stdout.fnmatch_lines(["random  recorded *"])
    _require_untouched(recorded.parent / "golden" / "random", strangers)


@pytest.mark.parametrize("written", [0, 1])
def test_strangers_survive_a_crash_and_the_next_record(
    recorded: Path, harness: Command, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    folder = recorded.parent / "golden" / "random"
    strangers = _strangers(folder)
    calls = 0

    def killed(path: Path, data: bytes) -> None:
        nonlocal calls
        if calls == written:
            # What a process leaves that is killed while it writes.
            (path.parent / f".{path.name}.abc123.part").write_bytes(data[:100])
            raise SystemExit(9)
        calls += 1
        write_atomically(path, data)

    monkeypatch.setattr("harness.golden.store.write_atomically", killed)
    # Nothing is tidied up after a kill.
    monkeypatch.setattr("harness.golden.store._Leftovers.remove", lambda *_arguments: None)
    recorded.write_text(recorded.read_text().replace("max_new_tokens = 24", "max_new_tokens = 20"))
    with pytest.raises(SystemExit):
        harness("record", recorded, "--reason", "killed")
    monkeypatch.undo()
    _require_untouched(folder, strangers)
    recorded.write_text(recorded.read_text().replace("max_new_tokens = 20", "max_new_tokens = 22"))
    assert harness("record", recorded, "--reason", "after the crash").status == 0
    _require_untouched(folder, strangers)
    assert not _unnamed(folder, strangers)


@pytest.fixture(scope="module")
def three_classes(recorded_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three folders with one golden each, of one pair in three classes: real ones but for the class they state."""
    source = recorded_folder / "golden" / "random"
    folders = []
    for name in CLASSES:
        folder = tmp_path_factory.mktemp(name)
        (tensors,) = source.glob("*.safetensors")
        shutil.copy(tensors, folder)
        document = json.loads((source / "reference-cpu-float32.json").read_text())
        noise = document["noise"]["float32"]
        document |= {"dtype": name, "noise": document["noise"] | {name: noise}}
        (folder / f"reference-cpu-{name}.json").write_text(json.dumps(document))
        folders.append(folder)
    return folders


def test_thirty_processes_save_three_classes_into_one_folder(tmp_path: Path, three_classes: list[Path]) -> None:
    folder = tmp_path / "golden" / "random"
    strangers = _strangers(folder)
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "suites.support.saving",
                folder,
                str(SAVES),
                *three_classes[turn:],
                *three_classes[:turn],
            ],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        for turn in (index % len(CLASSES) for index in range(PROCESSES))
    ]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    assert [file.name for file in golden_files(folder)] == sorted(f"reference-cpu-{name}.json" for name in CLASSES)
    for source in three_classes:
        name, document, tensors = prepared(source)
        saved = load_golden(folder / name)
        assert saved.document == document
        assert (folder / document.tensors).read_bytes() == tensors
    _require_untouched(folder, strangers)
    assert not _unnamed(folder, strangers)


def test_two_records_at_once(recorded: Path) -> None:
    folder = recorded.parent / "golden" / "random"
    strangers = _strangers(folder)
    command = [sys.executable, "-m", "harness", "record", str(recorded), "--reason", "at once", "--dtype"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen([*command, dtype], env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for dtype in ("float32", "float64")
    ]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    for dtype in ("float32", "float64"):
        assert load_golden(folder / f"reference-cpu-{dtype}.json").document.dtype == dtype
    _require_untouched(folder, strangers)
    assert not _unnamed(folder, strangers)


def test_a_folder_that_stays_locked_is_an_error(
    recorded: Path, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    import filelock

    folder = recorded.parent / "golden" / "random"
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    monkeypatch.setattr("harness.golden.store._PATIENCE", 0.1)
    with filelock.FileLock(folder / ".lock"):
        outcome = harness("record", recorded, "--reason", "locked out")
    assert outcome.status == 2
    assert "another process is writing goldens into the folder" in outcome.err
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
