"""`--acceptance-update`, by running pytest on pair files: what it writes, what it leaves, where it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from harness.golden.store import load_golden
from suites.support.schemas import read_valid

ARGUMENTS = ("-p", "no:cacheprovider")
UPDATE = (*ARGUMENTS, "--acceptance-update", "--acceptance-reason", "retrained")


@pytest.fixture
def pairs(recorded: Path, pytester: pytest.Pytester) -> Path:
    """The folder of a recorded pair, as pytester's own."""
    target = pytester.path / "pairs"
    recorded.parent.rename(target)
    return target


def _golden(pairs: Path) -> Path:
    return pairs / "golden" / "random" / "reference-cpu-float32.json"


def _snapshot(pairs: Path) -> dict[str, bytes]:
    folder = pairs / "golden"
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def _break_wiring(pairs: Path) -> None:
    config = pairs / "draft" / "config.json"
    config.write_text(config.read_text().replace("[-1, 1, 3]", "[-1, 1, 2]"))


def _record_floor(pairs: Path, floor: float) -> None:
    body = json.loads(_golden(pairs).read_text())
    _golden(pairs).write_text(json.dumps(body | {"floor": floor}))


def test_a_golden_that_differs_is_recorded_with_the_reason(pairs: Path, pytester: pytest.Pytester) -> None:
    _break_wiring(pairs)
    before = load_golden(_golden(pairs)).document
    out = pytester.path / "results.json"
    result = pytester.runpytest_inprocess(*UPDATE, pairs, "-rs", "--acceptance-json", out)
    result.assert_outcomes(skipped=7)
    result.stdout.fnmatch_lines(
        [
            "*= golden baselines =*",
            "pair * changed prompts  file",
            f"random  recorded * 8.6±* % -> *% * 6  {Path('pairs', 'golden', 'random', _golden(pairs).name)}",
            "next: *without --acceptance-update",
            "SKIPPED * nothing to compare with: the golden has just been recorded, *",
        ]
    )
    after = load_golden(_golden(pairs)).document
    assert (after.reason, after.wiring.boundaries) == ("retrained", [0, 2, 3])
    assert [entry.reason for entry in after.history] == [before.reason]
    body = read_valid("pytest", out)
    (done,) = body["updates"].values()
    assert (done["done"], done["before"]["rate"], done["changed_prompts"]) == ("recorded", before.totals.rate, 6)
    assert body["pairs"] == {}
    pytester.runpytest_inprocess(*ARGUMENTS, pairs).assert_outcomes(passed=6, skipped=1)


def test_a_golden_that_is_as_it_was_recorded_is_left_byte_for_byte(pairs: Path, pytester: pytest.Pytester) -> None:
    before = _snapshot(pairs)
    times = {file: file.stat().st_mtime_ns for file in _golden(pairs).parent.iterdir()}
    result = pytester.runpytest_inprocess(*UPDATE, pairs)
    result.assert_outcomes(passed=6, skipped=1)
    result.stdout.fnmatch_lines(["random  unchanged * 8.6±* % -> 8.6±* % * 0  *", "random  pass *"])
    result.stdout.no_fnmatch_line("next: *")
    assert _snapshot(pairs) == before
    assert {file: file.stat().st_mtime_ns for file in _golden(pairs).parent.iterdir()} == times


@pytest.mark.parametrize("change", ["a file", "the floor", "the prompts", "the settings"])
def test_what_a_passing_check_does_not_decide_on_is_recorded_too(
    pairs: Path, pytester: pytest.Pytester, change: str
) -> None:
    if change == "a file":
        config = pairs / "draft" / "config.json"
        config.write_text(config.read_text() + "\n")
    elif change == "the floor":
        _record_floor(pairs, 0.05)
    elif change == "the prompts":
        prompts = pairs / "prompts.jsonl"
        prompts.write_text("".join(prompts.read_text().splitlines(keepends=True)[:-1]))
    else:
        file = pairs / "random.pair.toml"
        file.write_text(file.read_text().replace("max_new_tokens = 24", "max_new_tokens = 20"))
    changed = {"a file": 0, "the floor": 0, "the prompts": 1, "the settings": 6}[change]
    result = pytester.runpytest_inprocess(*UPDATE, pairs)
    result.assert_outcomes(skipped=7)
    result.stdout.fnmatch_lines([f"random  recorded * {changed}  *"])
    pytester.runpytest_inprocess(*ARGUMENTS, pairs).assert_outcomes(passed=6, skipped=1)


def test_a_missing_golden_is_recorded_only_when_asked_for(pairs: Path, pytester: pytest.Pytester) -> None:
    shutil.rmtree(pairs / "golden")
    result = pytester.runpytest_inprocess(*ARGUMENTS, pairs)
    result.assert_outcomes(failed=7)
    assert "the pair has no golden" in result.stdout.str()
    assert not (pairs / "golden").exists()
    # Nothing is replaced, so that no reason is needed.
    result = pytester.runpytest_inprocess(*ARGUMENTS, pairs, "--acceptance-update")
    result.assert_outcomes(skipped=7)
    result.stdout.fnmatch_lines(["random  recorded * n/a -> 8.6±* % * 6  *"])
    assert load_golden(_golden(pairs)).document.reason == "first record"


@pytest.mark.parametrize("reason", [(), ("--acceptance-reason", "first in float64")])
def test_the_first_golden_of_a_class_is_recorded_next_to_the_others(
    pairs: Path, pytester: pytest.Pytester, reason: tuple[str, ...]
) -> None:
    """A check falls back on the float32 golden; an update must not: the float64 one would never be written."""
    file = pairs / "random.pair.toml"
    file.write_text(file.read_text() + '[engine]\ndtype = "float64"\n')
    before = _snapshot(pairs)
    pytester.runpytest_inprocess(*ARGUMENTS, pairs).assert_outcomes(passed=5, skipped=2)
    result = pytester.runpytest_inprocess(*ARGUMENTS, pairs, "--acceptance-update", *reason)
    result.assert_outcomes(skipped=7)
    result.stdout.fnmatch_lines(["random  recorded * n/a -> 8.6±* % * 6  *reference-cpu-float64.json"])
    after = _snapshot(pairs)
    assert {name: after[name] for name in before} == before
    document = load_golden(_golden(pairs).with_name("reference-cpu-float64.json")).document
    assert (document.dtype, document.reason) == ("float64", reason[1] if reason else "first record")
    pytester.runpytest_inprocess(*UPDATE, pairs).assert_outcomes(passed=6, skipped=1)
    assert _snapshot(pairs) == after


def test_no_reason_is_needed_where_nothing_is_replaced(pairs: Path, pytester: pytest.Pytester) -> None:
    """The golden that the pair is compared with is in a folder further up; recording writes to the nearest one."""
    (pairs / "golden").rename(pytester.path / "golden")
    (pairs / "golden").mkdir()
    before = _snapshot(pytester.path)
    _break_wiring(pairs)
    result = pytester.runpytest_inprocess(*ARGUMENTS, pairs, "--acceptance-update")
    result.assert_outcomes(skipped=7)
    result.stdout.fnmatch_lines(["random  recorded * 8.6±* % -> *% * 6  *reference-cpu-float32.json"])
    assert load_golden(_golden(pairs)).document.reason == "first record"
    assert _snapshot(pytester.path) == before


@pytest.mark.parametrize("there", ["its own golden", "a golden of another class"])
def test_an_engine_that_cannot_record_is_refused(pairs: Path, pytester: pytest.Pytester, there: str) -> None:
    if there == "a golden of another class":
        file = pairs / "random.pair.toml"
        file.write_text(file.read_text() + '[engine]\ndtype = "float64"\n')
    before = _snapshot(pairs)
    result = pytester.runpytest_inprocess(*UPDATE, pairs, "--acceptance-engine", "reference:sequential")
    result.assert_outcomes(failed=7)
    result.stdout.fnmatch_lines(["*records by replay*", "random  refused *"])
    assert _snapshot(pairs) == before


@pytest.mark.parametrize("reason", [(), ("--acceptance-reason", " ")])
def test_replacing_needs_a_reason_before_anything_is_measured(
    pairs: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, reason: tuple[str, ...]
) -> None:
    _break_wiring(pairs)
    before = _snapshot(pairs)
    monkeypatch.setattr("harness.commands.check.check", lambda _: pytest.fail("measured"))
    result = pytester.runpytest_inprocess(*ARGUMENTS, pairs, "--acceptance-update", *reason)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --acceptance-update: *reference-cpu-float32.json *--acceptance-reason*"])
    assert _snapshot(pairs) == before


def test_a_reason_without_an_update_is_a_mistake(pairs: Path, pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess(*ARGUMENTS, pairs, "--acceptance-reason", "why")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --acceptance-reason *--acceptance-update*"])


@pytest.mark.parametrize("arguments", [("-n", "1"), ("--dist", "loadgroup", "--tx", "popen")])
def test_no_golden_is_written_under_xdist(pairs: Path, pytester: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    _break_wiring(pairs)
    before = _snapshot(pairs)
    result = pytester.runpytest_subprocess(*UPDATE, pairs, *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --acceptance-update *without -n*"])
    assert _snapshot(pairs) == before


@pytest.mark.parametrize(
    ("value", "refused"), [("true", True), ("1", True), ("", False), ("0", False), ("False", False)]
)
def test_no_golden_is_written_in_ci(
    pairs: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, value: str, refused: bool
) -> None:
    monkeypatch.setenv("CI", value)
    before = _snapshot(pairs)
    _break_wiring(pairs)
    result = pytester.runpytest_subprocess(*UPDATE, pairs, "-k", "contract")
    assert result.ret == (pytest.ExitCode.USAGE_ERROR if refused else pytest.ExitCode.OK)
    assert (_snapshot(pairs) == before) is refused
    if refused:
        result.stderr.fnmatch_lines(["ERROR: --acceptance-update *CI*"])


def test_nothing_is_written_for_pairs_deselected_or_skipped(pairs: Path, pytester: pytest.Pytester) -> None:
    _break_wiring(pairs)
    before = _snapshot(pairs)
    pytester.makepyfile("def test_other():\n    pass\n")
    result = pytester.runpytest_inprocess(*UPDATE, "-k", "test_other")
    result.assert_outcomes(passed=1, deselected=7)
    result.stdout.fnmatch_lines(["no golden was updated, because no test of a pair file ran"])
    pytester.makeconftest(
        """
        import pytest

        def pytest_collection_modifyitems(items):
            for item in items:
                item.add_marker(pytest.mark.skip("not here"))
        """
    )
    pytester.runpytest_inprocess(*UPDATE).assert_outcomes(skipped=8)
    assert _snapshot(pairs) == before


def test_only_pairs_of_which_a_test_runs_are_updated(pairs: Path, pytester: pytest.Pytester) -> None:
    _break_wiring(pairs)
    for name in ("other", "third"):
        text = (pairs / "random.pair.toml").read_text()
        (pairs / f"{name}.pair.toml").write_text(text.replace('"random"', f'"{name}"'))
    before = _snapshot(pairs)
    result = pytester.runpytest_inprocess(*UPDATE, f"{pairs / 'other.pair.toml'}::contract")
    result.assert_outcomes(skipped=1)
    after = _snapshot(pairs)
    assert {name: after[name] for name in before} == before
    assert {Path(name).parts[0] for name in after} == {"random", "other"}


def test_a_refusal_fails_the_pair_and_leaves_its_golden(pairs: Path, pytester: pytest.Pytester) -> None:
    file = pairs / "random.pair.toml"
    file.write_text(file.read_text().replace("floor = 0.0", "floor = 0.9"))
    before = _snapshot(pairs)
    result = pytester.runpytest_inprocess(*UPDATE, pairs)
    result.assert_outcomes(failed=7)
    result.stdout.fnmatch_lines(["*below the floor*", "random  refused * 8.6±* % -> n/a * n/a  *"])
    assert "Traceback" not in result.stdout.str()
    assert _snapshot(pairs) == before


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_unreadable_golden_is_refused_and_left(pairs: Path, pytester: pytest.Pytester, dtype: str) -> None:
    # In float64 it is the golden of another class that the pair is compared with, until it has its own.
    file = pairs / "random.pair.toml"
    file.write_text(file.read_text() + f'[engine]\ndtype = "{dtype}"\n')
    _golden(pairs).write_text("{broken")
    before = _snapshot(pairs)
    result = pytester.runpytest_inprocess(*UPDATE, pairs)
    result.assert_outcomes(failed=7)
    result.stdout.fnmatch_lines(["*not valid JSON*", "random  refused *"])
    assert _snapshot(pairs) == before


def test_a_lower_floor_is_recorded_with_the_reason_only(pairs: Path, pytester: pytest.Pytester) -> None:
    _record_floor(pairs, 0.05)
    result = pytester.runpytest_inprocess(*ARGUMENTS, pairs, "--acceptance-update")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert load_golden(_golden(pairs)).document.floor == 0.05
    pytester.runpytest_inprocess(*UPDATE, pairs).assert_outcomes(skipped=7)
    document = load_golden(_golden(pairs)).document
    assert (document.floor, document.history[-1].floor) == (0.0, 0.05)


def test_one_record_a_pair(pairs: Path, pytester: pytest.Pytester) -> None:
    _break_wiring(pairs)
    pytester.runpytest_inprocess(*UPDATE, pairs).assert_outcomes(skipped=7)
    assert len(load_golden(_golden(pairs)).document.history) == 1
