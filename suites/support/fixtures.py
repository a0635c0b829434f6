"""Fixtures of several suites: a recorded random pair, the command line in this process, a machine that is nobody's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from harness.cli.app import main
from harness.engines.server.client import KEY_VARIABLE, PLAIN_KEY_VARIABLE
from harness.engines.server.trust import HOSTS_VARIABLE
from suites.support.command import Answer, Command
from suites.support.random_pair import write_pair
from suites.support.schemas import require_printed

__all__ = ["harness", "nobodys_machine", "recorded", "recorded_folder"]


@pytest.fixture(autouse=True)
def nobodys_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what the harness reads of its surroundings: a test starts the same at a desk and in CI."""
    for name in tuple(os.environ):
        if name in ("CI", KEY_VARIABLE, PLAIN_KEY_VARIABLE, HOSTS_VARIABLE) or name.startswith("GITHUB_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def harness(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command line in this process; whatever it prints as JSON must be what its schema says."""

    def run(*arguments: object) -> Answer:
        capsys.readouterr()
        words = [str(argument) for argument in arguments]
        status = main(words)
        captured = capsys.readouterr()
        if "--json" in words:
            require_printed(words, captured.out)
        return Answer(status, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def recorded_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    file = write_pair(folder)
    assert main(["record", str(file), "--json"]) == 0
    return folder


@pytest.fixture
def recorded(recorded_folder: Path, tmp_path: Path) -> Path:
    """The pair file of a fresh copy of a recorded random pair; its golden stands beside it."""
    shutil.copytree(recorded_folder, tmp_path / "pair")
    return tmp_path / "pair" / "random.pair.toml"
