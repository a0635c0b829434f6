"""Two pair files with one name: one pair on several engines, or an error that names both."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from suites.support.command import Command

ARGUMENTS = ("-p", "no:cacheprovider")
UPDATE = (*ARGUMENTS, "--acceptance-update", "--acceptance-reason", "two files")


def _second(recorded: Path, *changes: tuple[str, str]) -> Path:
    """Write another pair file of the same name next to a recorded one."""
    text = recorded.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    file = recorded.parent / "second.pair.toml"
    file.write_text(text)
    return file


def _other_draft(recorded: Path) -> Path:
    shutil.copytree(recorded.parent / "draft", recorded.parent / "draft-2")
    return _second(recorded, ('"draft"', '"draft-2"'))


def _float64(recorded: Path) -> Path:
    """The same pair in another dtype, which is another class."""
    return _second(recorded, ("[decode]", '[engine]\ndtype = "float64"\n[decode]'))


CLASHES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "the same golden": (lambda file: _second(file, ("floor = 0.0", "floor = 0.001")), "would write the same golden"),
    "another draft": (_other_draft, "the same name, and another draft"),
    "other decode settings": (
        lambda file: _second(
            file, ("[decode]", '[engine]\ndtype = "float64"\n[decode]'), ("max_new_tokens = 24", "max_new_tokens = 20")
        ),
        "the same name, and another decode",
    ),
}


@pytest.mark.parametrize("clash", CLASHES)
def test_record_refuses_a_golden_of_another_pair_file(recorded: Path, harness: Command, clash: str) -> None:
    make, message = CLASHES[clash]
    second = make(recorded)
    before = {file: file.read_bytes() for file in (recorded.parent / "golden").rglob("*") if file.is_file()}
    outcome = harness("record", second, "--reason", "mine")
    assert outcome.status == 2
    assert message in outcome.err
    assert "second.pair.toml" in outcome.err
    assert "random.pair.toml" in outcome.err
    assert {file: file.read_bytes() for file in before} == before


def test_a_pair_may_be_recorded_on_several_engines_by_several_files(recorded: Path, harness: Command) -> None:
    assert harness("record", _float64(recorded)).status == 0
    assert harness("record", recorded, "--reason", "again").status == 0
    assert harness("check", recorded).status == 0


def test_a_copy_of_the_folder_records_its_own(recorded: Path, harness: Command, tmp_path: Path) -> None:
    """The copy's golden names its pair file relative to itself: the original is nothing to the copy."""
    shutil.copytree(recorded.parent, tmp_path / "copy")
    assert harness("record", tmp_path / "copy" / recorded.name, "--reason", "copied").status == 0


def test_a_golden_whose_pair_file_is_gone_is_replaced(recorded: Path, harness: Command) -> None:
    renamed = recorded.rename(recorded.with_name("renamed.pair.toml"))
    assert harness("record", renamed, "--reason", "renamed").status == 0


@pytest.mark.parametrize("clash", CLASHES)
@pytest.mark.parametrize("options", [ARGUMENTS, UPDATE], ids=["check", "update"])
def test_pytest_refuses_to_collect_both(
    recorded: Path, pytester: pytest.Pytester, clash: str, options: tuple[str, ...]
) -> None:
    make, message = CLASHES[clash]
    make(recorded)
    before = {file: file.read_bytes() for file in (recorded.parent / "golden").rglob("*") if file.is_file()}
    result = pytester.runpytest_inprocess(*options, recorded.parent)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([f"*{message}*", "*ERROR *.pair.toml*"])
    assert "Traceback" not in result.stdout.str()
    assert {file: file.read_bytes() for file in before} == before


def test_pytest_runs_one_pair_on_two_engines(recorded: Path, pytester: pytest.Pytester) -> None:
    second = _float64(recorded)
    out = pytester.path / "results.json"
    result = pytester.runpytest_inprocess(*ARGUMENTS, recorded.parent, "--acceptance-json", out)
    result.assert_outcomes(passed=11, skipped=3)
    assert len(json.loads(out.read_text())["pairs"]) == 2, second


def test_an_update_of_two_files_on_one_engine_is_refused(recorded: Path, pytester: pytest.Pytester) -> None:
    """Their own settings differ, and the option makes them one class."""
    _second(recorded, ("[decode]", '[engine]\nname = "sglang"\n[decode]'))
    result = pytester.runpytest_inprocess(*UPDATE, recorded.parent, "--acceptance-engine", "reference")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*would both write*"])
