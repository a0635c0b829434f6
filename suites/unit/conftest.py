"""Fixtures of the unit tests: a recorded random pair, and the command line in this process."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.cli.app import main
from harness.engines.server.client import KEY_VARIABLE, PLAIN_KEY_VARIABLE
from suites.random_pair import write_pair


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on stdout."""
        body = json.loads(self.out)
        assert isinstance(body, dict)
        return body


Command = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def _nobodys_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what the harness reads of its surroundings: a test starts the same at a desk and in CI."""
    for name in tuple(os.environ):
        if name in ("CI", KEY_VARIABLE, PLAIN_KEY_VARIABLE) or name.startswith("GITHUB_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def harness(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command line in this process."""

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def _recorded_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    file = write_pair(folder)
    assert main(["record", str(file), "--json"]) == 0
    return folder


@pytest.fixture
def recorded(_recorded_folder: Path, tmp_path: Path) -> Path:
    """The pair file of a fresh copy of a recorded random pair; its golden stands beside it."""
    shutil.copytree(_recorded_folder, tmp_path / "pair")
    return tmp_path / "pair" / "random.pair.toml"
