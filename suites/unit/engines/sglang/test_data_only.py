"""What SGLang is given of a checkpoint: everything but its code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.engines.sglang.data_only import data_only
from harness.engines.sglang.installed import engine_environment
from suites.support.builtin_pairs import ROOT
from suites.support.coded_checkpoint import bring_code

TARGET = ROOT / "fixtures" / "tiny" / "target"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TARGET, tmp_path / "target"))


def _keys(value: object) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(_keys, value.values()))
    return set().union(*map(_keys, value)) if isinstance(value, list) else set()


def test_a_checkpoint_without_code_is_given_as_it_is(checkpoint: Path, tmp_path: Path) -> None:
    assert data_only(checkpoint, tmp_path / "data") == checkpoint
    assert not (tmp_path / "data").exists()


def test_what_names_classes_is_left_out_at_every_depth(checkpoint: Path, tmp_path: Path) -> None:
    # Written so that a search in the text does not find it, and in a config of a part.
    nested = '{"text_config": {"layers": [{"auto\\u005fmap": {"AutoModel": "evil.C"}, "a": Infinity}]}, "b": 1}'
    (checkpoint / "other_config.json").write_text(nested)
    bring_code(checkpoint, architectures=["Evil"])
    (checkpoint / "broken.json").write_text('{"auto_map": ')
    folder = data_only(checkpoint, tmp_path / "data")
    assert folder == tmp_path / "data"
    for file in folder.iterdir():
        if file.suffix == ".json":
            assert "auto_map" not in _keys(json.loads(file.read_text())), file.name
    assert json.loads((folder / "other_config.json").read_text()) == {
        "text_config": {"layers": [{"a": float("inf")}]},
        "b": 1,
    }
    names = {file.name for file in checkpoint.iterdir()}
    assert {file.name for file in folder.iterdir()} == names - {"evil.py", "broken.json"}


def test_the_rest_is_the_same_bytes(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "modeling.py").write_text("")
    folder = data_only(checkpoint, tmp_path / "data")
    for file in TARGET.iterdir():
        assert (folder / file.name).read_bytes() == file.read_bytes()
    assert not (folder / "modeling.py").exists()


@pytest.mark.parametrize("guarded", [True, False], ids=["as the harness starts it", "as python starts it"])
def test_no_module_of_the_folder_that_it_starts_in_is_imported(tmp_path: Path, guarded: bool) -> None:
    """The pair's folder, if the user stands in it. Without the guard its modules shadow Python's own."""
    marker = tmp_path / "ran"
    for name in ("queue", "json", "multiprocessing"):
        (tmp_path / f"{name}.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    environment = engine_environment("cuda", "folder") if guarded else {**os.environ, "PYTHONPATH": str(ROOT)}
    # Without the descriptor that it answers on, the driver ends once it is imported.
    command = [sys.executable, "-m", "harness.engines.sglang.driver"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert marker.exists() is not guarded
    assert "IndexError" in done.stderr or not guarded, done.stderr
