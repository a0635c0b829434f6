"""Where a golden comes from: the commit is read from the repository's files, and no program of a repository runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cli.app import main
from harness.commands.prepare import prepare
from harness.golden.provenance import changed_files, commit_of, pair_hashes
from harness.golden.store import load_golden
from suites.support.command import Command
from suites.support.faulty_server import Told, serving, told_by
from suites.support.random_pair import SERVABLE, write_pair

_ENVIRONMENT = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **_ENVIRONMENT})
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two commits and a pair file in a folder of it."""
    folder = tmp_path / "repository"
    (folder / "pairs").mkdir(parents=True)
    (folder / "pairs" / "a.pair.toml").write_text('name = "a"\n')
    _git(folder, "init", "--initial-branch=main")
    _git(folder, "add", ".")
    _git(folder, "commit", "-m", "one")
    _git(folder, "commit", "--allow-empty", "-m", "two")
    return folder


def _loose(_repository: Path) -> None:
    pass


def _packed(repository: Path) -> None:
    _git(repository, "tag", "-a", "v1", "-m", "one")
    _git(repository, "pack-refs", "--all")
    assert not (repository / ".git" / "refs" / "heads" / "main").exists()


def _packed_and_moved_on(repository: Path) -> None:
    _packed(repository)
    _git(repository, "commit", "--allow-empty", "-m", "three")


def _detached(repository: Path) -> None:
    _git(repository, "checkout", "--detach", "HEAD~1")


def _symbolic(repository: Path) -> None:
    _git(repository, "symbolic-ref", "refs/heads/alias", "refs/heads/main")
    _git(repository, "symbolic-ref", "HEAD", "refs/heads/alias")


@pytest.mark.parametrize("state", [_loose, _packed, _packed_and_moved_on, _detached, _symbolic])
def test_the_commit_is_the_one_that_git_names(repository: Path, state: Callable[[Path], None]) -> None:
    state(repository)
    expected = _git(repository, "rev-parse", "HEAD")
    assert len(expected) == 40
    assert commit_of(repository) == commit_of(repository / "pairs") == expected


def test_a_worktree_has_a_commit_of_its_own(repository: Path, tmp_path: Path) -> None:
    for options in (("--detach",), ("-b", "other")):
        place = tmp_path / "-".join(options)
        _git(repository, "worktree", "add", *options, str(place), "HEAD~1")
        assert (place / ".git").is_file()
        assert commit_of(place / "pairs") == _git(place, "rev-parse", "HEAD") != commit_of(repository)
    _git(repository, "pack-refs", "--all")
    assert commit_of(place) == _git(place, "rev-parse", "HEAD")


def test_no_repository_and_no_commit(tmp_path: Path) -> None:
    assert commit_of(tmp_path) is None
    empty = tmp_path / "empty"
    empty.mkdir()
    _git(empty, "init")
    assert commit_of(empty) is None


@pytest.mark.parametrize(
    "head",
    ["", "ref: refs/heads/../../../secret", "ref: ../secret", "ref: /etc/hostname", "ref: refs/heads/main", "x" * 40],
)
def test_what_is_no_commit_is_not_recorded(tmp_path: Path, head: str) -> None:
    """Nothing but a commit's digits leaves a file, whatever a repository's HEAD points at."""
    home = tmp_path / "repository" / ".git"
    (home / "refs" / "heads").mkdir(parents=True)
    (tmp_path / "secret").write_text("0" * 40)
    (home / "HEAD").write_text(head)
    (home / "refs" / "heads" / "main").write_text("ref: refs/heads/main")
    assert commit_of(home.parent) is None


def test_no_program_of_a_repository_runs(repository: Path) -> None:
    """A repository that names a program wherever git would start one: none starts, and no process at all."""
    marker = repository / "ran"
    program = repository / "program.sh"
    program.write_text(f"#!/bin/sh\ntouch '{marker}'\ncat\n")
    program.chmod(0o755)
    for key in ("core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "diff.external", "gpg.program"):
        _git(repository, "config", key, str(program))
    for key in ("filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "diff.evil.textconv"):
        _git(repository, "config", key, str(program))
    (repository / ".gitattributes").write_text("* filter=evil diff=evil\n")
    for hook in ("post-index-change", "reference-transaction", "post-checkout", "fsmonitor-watchman"):
        (repository / ".git" / "hooks" / hook).write_text(program.read_text())
        (repository / ".git" / "hooks" / hook).chmod(0o755)
    (repository / "pairs" / "a.pair.toml").write_text('name = "b"\n')
    # What git itself would do: without this the test could not fail.
    subprocess.run(["git", "-C", str(repository), "describe", "--always", "--dirty"], capture_output=True)
    assert marker.exists()
    marker.unlink()
    started: list[tuple[str, tuple[object, ...]]] = []

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork") and watching:
            started.append((event, arguments))

    watching = False
    sys.addaudithook(note)
    watching = True
    found = commit_of(repository / "pairs")
    watching = False
    assert found is not None
    assert len(found) == 40
    assert started == []
    assert not marker.exists()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("servable")
    assert main(["record", str(write_pair(folder, draft=SERVABLE)), "--json"]) == 0
    return folder


@pytest.fixture(scope="module")
def told(folder: Path) -> Told:
    return told_by(prepare(folder / "random.pair.toml"))


_WEIGHTS = {"target/model.safetensors", "draft/model.safetensors"}


def _take_weights(file: Path) -> None:
    for name in _WEIGHTS:
        (file.parent / name).unlink()


def test_a_pair_on_a_server_needs_no_weights(folder: Path, told: Told, tmp_path: Path, harness: Command) -> None:
    """Configs, tokenizer, prompts and golden are enough, and nothing is said about files that nobody reads."""
    file = Path(shutil.copytree(folder, tmp_path / "pair")) / "random.pair.toml"
    with serving(told) as server:
        whole = harness("check", file, "--endpoint", server.endpoint, "--json")
        _take_weights(file)
        bare = harness("check", file, "--endpoint", server.endpoint, "--json")
        hashes = pair_hashes(prepare(file, endpoint=server.endpoint))
    assert whole.status == bare.status == 0, bare.err
    states = [{name: one["verdict"] for name, one in answer.json["detectors"].items()} for answer in (whole, bare)]
    assert states[0] == states[1]
    assert states[0]["contract"] == states[0]["acceptance"] == "pass"
    assert whole.json["notes"] == bare.json["notes"]
    contracts = [answer.json["detectors"]["contract"]["message"] for answer in (whole, bare)]
    assert ["weights are not here" in message for message in contracts] == [False, True]
    assert hashes.keys() == {"prompts", "target/config.json", "target/generation_config.json", "draft/config.json"}


def test_a_golden_of_a_server_needs_no_weights(folder: Path, told: Told, tmp_path: Path, harness: Command) -> None:
    """It is recorded and checked without any; a check from files says nothing about weights that it never had."""
    file = Path(shutil.copytree(folder, tmp_path / "pair")) / "random.pair.toml"
    shutil.rmtree(file.parent / "golden")
    file.write_text(file.read_text().replace("floor = 0.0", "floor = 0.0\nmargin = 0.05"))
    weights = {name: (file.parent / name).read_bytes() for name in _WEIGHTS}
    _take_weights(file)
    with serving(told) as server:
        done = harness("record", file, "--endpoint", server.endpoint, "--json")
        checked = harness("check", file, "--endpoint", server.endpoint, "--json")
    assert done.status == checked.status == 0, done.err + checked.err
    assert not [name for name in load_golden(Path(done.json["golden"])).document.hashes if name.endswith("safetensors")]
    for name, content in weights.items():
        (file.parent / name).write_bytes(content)
    pair = prepare(file)
    assert changed_files(pair, load_golden(Path(done.json["golden"]))) == []


def test_weights_are_hashed_where_they_are_read(folder: Path) -> None:
    assert pair_hashes(prepare(folder / "random.pair.toml")).keys() >= _WEIGHTS


def test_a_pair_that_is_run_from_its_files_needs_its_weights(folder: Path, tmp_path: Path, harness: Command) -> None:
    file = Path(shutil.copytree(folder, tmp_path / "pair")) / "random.pair.toml"
    _take_weights(file)
    answer = harness("check", file)
    assert answer.status == 2
    assert "does not have weights" in answer.err


def test_no_weight_is_opened_for_a_server(folder: Path, told: Told, tmp_path: Path, harness: Command) -> None:
    """The target's may be a terabyte behind a slow link, and a hash would read all of it."""
    file = Path(shutil.copytree(folder, tmp_path / "pair")) / "random.pair.toml"
    weights = (file.parent / "target" / "model.safetensors").resolve()
    opened: list[str] = []

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and str(arguments[0]) == str(weights):
            opened.append(str(arguments[0]))

    sys.addaudithook(note)
    with serving(told) as server:
        assert harness("check", file, "--endpoint", server.endpoint).status == 0
    assert opened == []
    assert harness("check", file).status == 0
    # The counterpart: what is run from its files is hashed, so that the hook above sees something.
    assert opened
