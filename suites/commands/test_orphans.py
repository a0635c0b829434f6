"""Goldens that nothing uses: found by the command and told by pytest, never removed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from suites.support.command import Command
from suites.support.random_pair import PAIR
from suites.support.schemas import read_valid

ARGUMENTS = ("-p", "no:cacheprovider")
CLASS = "reference-cpu-float32.json"


@pytest.fixture
def home(recorded: Path) -> Path:
    """The `golden/` of a recorded pair."""
    return recorded.parent / "golden"


def _snapshot(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def _other_pair(file: Path, name: str = "old") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(PAIR.replace('"random"', f'"{name}"'))


def test_where_every_golden_is_used_there_is_no_finding(home: Path, harness: Command) -> None:
    outcome = harness("golden", "orphans", home, "--json")
    assert (outcome.status, outcome.json["orphans"], outcome.json["pairs"]) == (0, [], ["random"])
    assert "0 findings in" in harness("golden", "orphans", home).out


def test_a_folder_of_no_pair_is_one_finding(home: Path, harness: Command) -> None:
    shutil.copytree(home / "random", home / "old")
    (home / "old" / f"{'0' * 64}.safetensors").write_bytes(b"")
    before = _snapshot(home)
    outcome = harness("golden", "orphans", home, "--json")
    assert outcome.status == 1
    (finding,) = outcome.json["orphans"]
    assert (finding["kind"], finding["path"]) == ("folder", str(home / "old"))
    assert f"{home / 'old'}: no pair file below {home.parent} has this name" in harness("golden", "orphans", home).out
    assert _snapshot(home) == before


def test_tensors_that_no_golden_names(home: Path, harness: Command) -> None:
    stray = [home / f"{'1' * 64}.safetensors", home / "random" / f"{'0' * 64}.safetensors"]
    for file in stray:
        file.write_bytes(b"")
    found = harness("golden", "orphans", home, "--json").json["orphans"]
    assert [(entry["kind"], entry["path"]) for entry in found] == [("tensors", str(file)) for file in stray]


@pytest.mark.parametrize("text", ["{broken", "[]", '{"schema_version": 1, "tensors": []}', '{"schema_version": 9}'])
def test_a_golden_that_cannot_be_read_is_a_finding_and_its_tensors_are_not(
    home: Path, harness: Command, text: str
) -> None:
    (home / "random" / CLASS).write_text(text)
    found = harness("golden", "orphans", home, "--json").json["orphans"]
    assert ("unreadable", str(home / "random" / CLASS)) in [(entry["kind"], entry["path"]) for entry in found]
    if text in ("{broken", "[]"):
        assert len(found) == 1


@pytest.mark.parametrize(
    ("place", "used"),
    [("sub/deep", True), (".hidden", False), (".tox/env", False), ("node_modules/x", False), ("build", False)],
)
def test_pair_files_count_where_the_project_has_its_sources(
    home: Path, harness: Command, place: str, used: bool
) -> None:
    shutil.copytree(home / "random", home / "old")
    _other_pair(home.parent / place / "old.pair.toml")
    assert harness("golden", "orphans", home).status == (0 if used else 1)


@pytest.mark.parametrize("mark", ["pyvenv.cfg", "conda-meta/history"])
def test_an_environment_is_no_source_whatever_its_name(home: Path, harness: Command, mark: str) -> None:
    shutil.copytree(home / "random", home / "old")
    _other_pair(home.parent / "env" / "lib" / "old.pair.toml")
    assert harness("golden", "orphans", home).status == 0
    (home.parent / "env" / mark).parent.mkdir(exist_ok=True)
    (home.parent / "env" / mark).write_text("")
    assert harness("golden", "orphans", home).status == 1


def test_the_folder_is_the_nearest_upward_or_the_one_named(
    home: Path, harness: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(home.parent / "draft")
    assert harness("golden", "orphans", "--json").json["folder"] == str(home)
    monkeypatch.chdir(tmp_path)
    assert harness("golden", "orphans", "pair", "--json").json["folder"] == str(home)
    (home / "golden").mkdir()
    assert harness("golden", "orphans", home, "--json").json["folder"] == str(home)
    shutil.rmtree(home)
    outcome = harness("golden", "orphans", home)
    assert (outcome.status, "the folder does not exist" in outcome.err) == (2, True)
    if not any((folder / "golden").is_dir() for folder in (tmp_path, *tmp_path.parents)):
        outcome = harness("golden", "orphans", "--json")
        assert (outcome.status, outcome.json["error"]["type"]) == (2, "InputError")


def test_what_a_broken_pair_file_uses_is_not_known(home: Path, harness: Command) -> None:
    (home.parent / "broken.pair.toml").write_text("name = ")
    outcome = harness("golden", "orphans", home, "--json")
    assert outcome.status == 2
    assert outcome.json["error"]["file"].endswith("broken.pair.toml")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="this user may look into every folder")
def test_what_lies_in_a_closed_folder_is_not_known(home: Path, harness: Command) -> None:
    closed = home.parent / "closed"
    closed.mkdir(mode=0)
    assert harness("golden", "orphans", home).status == 2
    closed.chmod(0o700)


@pytest.fixture
def project(recorded: Path, pytester: pytest.Pytester) -> Path:
    """A project of a recorded pair, as pytester's own, with a golden that no pair file uses."""
    target = pytester.path / "pairs"
    recorded.parent.rename(target)
    shutil.copytree(target / "golden" / "random", target / "golden" / "old")
    return target


HOME = Path("pairs", "golden")
TOLD = f"1 golden that no pair file uses: {HOME / 'old'}; see harness golden orphans {HOME}"


def test_pytest_tells_unused_goldens_without_failing(project: Path, pytester: pytest.Pytester) -> None:
    before = _snapshot(project)
    out = pytester.path / "results.json"
    result = pytester.runpytest_inprocess(*ARGUMENTS, "--acceptance-json", out)
    result.assert_outcomes(passed=6, skipped=1)
    assert result.ret == 0
    result.stdout.fnmatch_lines([TOLD])
    assert read_valid("pytest", out)["unused_goldens"] == [str(project / "golden" / "old")]
    assert _snapshot(project) == before


def test_pytest_tells_them_under_xdist_too(project: Path, pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess(*ARGUMENTS, project, "-n", "1")
    result.assert_outcomes(passed=6, skipped=1)
    result.stdout.fnmatch_lines([TOLD])


@pytest.mark.parametrize(
    "part",
    [
        ("pairs", "-k", "contract"),
        ("pairs", "-m", "not slow"),
        ("pairs", "--deselect", "pairs/random.pair.toml::acceptance"),
        ("pairs/random.pair.toml",),
        ("pairs/random.pair.toml::contract",),
        ("pairs", "--collect-only"),
    ],
)
def test_a_run_of_a_part_says_nothing_about_goldens(
    project: Path, pytester: pytest.Pytester, part: tuple[str, ...]
) -> None:
    assert project.is_dir()
    result = pytester.runpytest_inprocess(*ARGUMENTS, *part)
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*no pair file uses*")


def test_goldens_of_skipped_ignored_and_uncollected_pairs_are_used(project: Path, pytester: pytest.Pytester) -> None:
    _other_pair(project / "more" / "old.pair.toml")
    for run in (("pairs", "--ignore", "pairs/more"), ("pairs", "--deselect", "pairs/more")):
        result = pytester.runpytest_inprocess(*ARGUMENTS, *run)
        result.assert_outcomes(passed=6, skipped=1, deselected=7 if "--deselect" in run else 0)
        result.stdout.no_fnmatch_line("*no pair file uses*")
    pytester.makeconftest(
        """
        import pytest

        def pytest_collection_modifyitems(items):
            for item in items:
                item.add_marker(pytest.mark.skip("not here"))
        """
    )
    result = pytester.runpytest_inprocess(*ARGUMENTS)
    result.assert_outcomes(skipped=14)
    result.stdout.no_fnmatch_line("*no pair file uses*")
    (project / "more" / "old.pair.toml").unlink()
    pytester.runpytest_inprocess(*ARGUMENTS).stdout.fnmatch_lines([TOLD])


def test_a_renamed_pair_has_left_its_golden_behind(project: Path, pytester: pytest.Pytester) -> None:
    shutil.rmtree(project / "golden" / "old")
    _other_pair(project / "random.pair.toml", "renamed")
    result = pytester.runpytest_inprocess(*ARGUMENTS, project)
    result.assert_outcomes(failed=7)
    result.stdout.fnmatch_lines([f"1 golden that no pair file uses: {Path('pairs', 'golden', 'random')}; *"])


def test_nothing_is_told_where_a_pair_file_cannot_be_read(project: Path, pytester: pytest.Pytester) -> None:
    (project / "broken.pair.toml").write_text("name = ")
    result = pytester.runpytest_inprocess(*ARGUMENTS, project)
    result.assert_outcomes(passed=6, skipped=1, failed=7)
    result.stdout.no_fnmatch_line("*no pair file uses*")
