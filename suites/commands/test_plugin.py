"""The pytest plugin, by running pytest on pair files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

import pytest

from harness.commands.check import CheckResult
from harness.counts.acceptance import measure_acceptance
from harness.golden.golden_class import DEFAULT
from harness.golden.schema import Totals
from harness.golden.store import load_golden, save_golden
from harness.golden.tensors import pack_tensors, tensors_name
from harness.pair.pair import Pair
from suites.support.schemas import read_valid

ARGUMENTS = ("-p", "no:cacheprovider")


@pytest.fixture
def pairs(recorded: Path, pytester: pytest.Pytester) -> Path:
    """The folder of a recorded pair, as pytester's own."""
    target = pytester.path / "pairs"
    recorded.parent.rename(target)
    return target


def _break_wiring(pairs: Path) -> None:
    config = pairs / "draft" / "config.json"
    config.write_text(config.read_text().replace("[-1, 1, 3]", "[-1, 1, 2]"))


def _strict(pairs: Path) -> None:
    file = pairs / "random.pair.toml"
    file.write_text(file.read_text() + "strict = true\n")


def test_a_pair_file_is_a_test_file(pairs: Path, pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(*ARGUMENTS, "-v", pairs)
    result.assert_outcomes(passed=6, skipped=1)
    for name in ("contract", "target", "stages", "proposals", "likelihood", "acceptance"):
        result.stdout.fnmatch_lines([f"*random.pair.toml::{name} PASSED*"])
    result.stdout.fnmatch_lines(["acceptance-harness: *", "*= acceptance =*", "random *pass * 8.6±**"])


def test_a_pair_file_wants_no_other_plugin(pairs: Path, pytester: pytest.Pytester) -> None:
    """Nor an undeclared marker, in a project that allows none."""
    alone = ("-p", "no:xdist", "-p", "no:benchmark", "-p", "no:hypothesispytest", "--strict-markers", "--strict-config")
    pytester.runpytest_inprocess(*ARGUMENTS, *alone, pairs).assert_outcomes(passed=6, skipped=1)


def test_a_wrong_wire_is_red_with_the_report_and_the_next_command(pairs: Path, pytester: pytest.Pytester) -> None:
    _break_wiring(pairs)
    _strict(pairs)
    result = pytester.runpytest_inprocess(*ARGUMENTS, pairs)
    assert result.ret == 1
    text = result.stdout.str()
    assert "positions propose another chain" in text
    assert "boundaries [0, 2, 3] are captured, [0, 2, 4] were" in text
    assert "Traceback" not in text
    result.stdout.fnmatch_lines(["next: harness check *random.pair.toml"])


def test_a_change_without_loss_is_red_only_where_the_pair_is_strict(pairs: Path, pytester: pytest.Pytester) -> None:
    _break_wiring(pairs)
    file = pairs / "random.pair.toml"
    strict = file.read_text()
    # Acceptance that decides next to it: a change alone is a warning.
    file.write_text(f"{strict}strict = false\nmargin = 0.5\n")
    result = pytester.runpytest_inprocess(*ARGUMENTS, pairs, "-k", "proposals or likelihood")
    result.assert_outcomes(passed=2)
    # Next to an acceptance that cannot decide, it fails as well, since it names the cause.
    file.write_text(f"{strict}strict = false\n")
    result = pytester.runpytest_inprocess(*ARGUMENTS, pairs)
    result.assert_outcomes(passed=3, failed=3, skipped=1)
    # Strict is what a pair file is that does not say.
    file.write_text(strict)
    result = pytester.runpytest_inprocess(*ARGUMENTS, pairs, "-k", "proposals")
    result.assert_outcomes(failed=1)


def test_bad_input_fails_every_test_of_the_pair_with_the_error(pairs: Path, pytester: pytest.Pytester) -> None:
    (pairs / "prompts.jsonl").write_text("{broken\n")
    result = pytester.runpytest_inprocess(*ARGUMENTS, pairs)
    result.assert_outcomes(failed=7)
    assert "line 1" in result.stdout.str()
    assert "Traceback" not in result.stdout.str()


def test_one_measurement_a_pair(pairs: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    import harness.commands.check

    calls: list[str] = []
    check = harness.commands.check.check

    def counted(pair: Pair) -> CheckResult:
        calls.append(pair.name)
        return check(pair)

    monkeypatch.setattr(harness.commands.check, "check", counted)
    pytester.runpytest_inprocess(*ARGUMENTS, pairs).assert_outcomes(passed=6, skipped=1)
    assert calls == ["random"]


def test_results_as_json(pairs: Path, pytester: pytest.Pytester) -> None:
    out = pytester.path / "out" / "results.json"
    pytester.runpytest_inprocess(*ARGUMENTS, pairs, "--acceptance-json", out).assert_outcomes(passed=6, skipped=1)
    body = read_valid("pytest", out)
    (result,) = body["pairs"].values()
    assert body["schema_version"] == 1
    assert result["verdict"] == "pass"
    assert result["acceptance"]["prompts"] == 6


def _keep_one_prompt(pairs: Path) -> None:
    """Cut prompts file and golden down to their first prompt; `record` would ask for more."""
    prompts = pairs / "prompts.jsonl"
    prompts.write_text(prompts.read_text().splitlines(keepends=True)[0])
    golden = load_golden(pairs / "golden" / "random" / DEFAULT.file)
    (first, *_) = golden.document.prompts
    counts = measure_acceptance([first.counts()])
    totals = Totals(**{name: getattr(counts, name) for name in Totals.model_fields})
    tensors = pack_tensors([golden.tensors[first.id]])
    changes = {"prompts": [first], "totals": totals, "tensors": tensors_name(tensors)}
    save_golden(golden.file, golden.document.model_copy(update=changes), tensors)


def _refuse(constant: str) -> NoReturn:
    pytest.fail(f"{constant} is not JSON")


def test_bounds_of_a_single_prompt_are_what_a_rate_can_reach(pairs: Path, pytester: pytest.Pytester) -> None:
    """The change of a single prompt has no standard error: nothing is excluded but what is impossible."""
    _keep_one_prompt(pairs)
    _break_wiring(pairs)
    out = pytester.path / "results.json"
    pytester.runpytest_inprocess(*ARGUMENTS, pairs, "--acceptance-json", out)
    (result,) = json.loads(out.read_text(), parse_constant=_refuse)["pairs"].values()
    assert result["drop"]["high"] - result["drop"]["low"] == pytest.approx(1)
    assert result["drop"]["low"] <= result["drop"]["estimate"] <= result["drop"]["high"]


def test_an_unwritable_place_for_json_is_told_before_anything_is_measured(
    pairs: Path, pytester: pytest.Pytester
) -> None:
    (pytester.path / "file").write_text("")
    for place in (pytester.path / "file" / "results.json", pytester.path):
        result = pytester.runpytest_subprocess(*ARGUMENTS, pairs, "--acceptance-json", place)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["ERROR: --acceptance-json: *"])
        result.stderr.no_fnmatch_line("*Traceback*")
        result.stdout.no_fnmatch_line("*acceptance*")


def test_json_that_cannot_be_written_at_the_end_is_told_with_the_results(
    pairs: Path, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(
        """
import shutil, pathlib
def pytest_runtest_teardown():
    folder = pathlib.Path("out")
    if folder.exists():
        shutil.rmtree(folder)
        folder.write_text("a file now")
"""
    )
    (pytester.path / "out").mkdir()
    result = pytester.runpytest_inprocess(*ARGUMENTS, pairs, "--acceptance-json", pytester.path / "out" / "r.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["--acceptance-json: *cannot be written*", "random *pass*"])


def test_junit_carries_rate_and_verdict(pairs: Path, pytester: pytest.Pytester) -> None:
    pytester.runpytest_inprocess(*ARGUMENTS, pairs, "--junitxml", pytester.path / "junit.xml")
    text = (pytester.path / "junit.xml").read_text()
    assert '<property name="acceptance_verdict" value="pass" />' in text
    assert '<property name="acceptance_rate" value="8.6%" />' in text
    assert '<property name="acceptance_standard_error" value="1.2%" />' in text


def test_the_engine_option_wins(pairs: Path, pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(
        *ARGUMENTS, pairs, "-rs", "--acceptance-engine", "reference:sequential", "-k", "acceptance or stages"
    )
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["random *reference:sequential cpu float32"])


def test_fixtures_of_ones_own_tests(pairs: Path, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_own="""
        def test_pair(pair, acceptance, golden):
            assert pair.name == "random"
            assert acceptance.rate == golden.document.totals.rate
        """
    )
    pair = pairs / "random.pair.toml"
    pytester.runpytest_inprocess(*ARGUMENTS, "test_own.py", "--acceptance-pair", pair).assert_outcomes(passed=1)
    result = pytester.runpytest_inprocess(*ARGUMENTS, "test_own.py")
    result.assert_outcomes(errors=1)
    assert "--acceptance-pair" in result.stdout.str()


def test_workers_share_one_measurement(pairs: Path, pytester: pytest.Pytester) -> None:
    out = pytester.path / "results.json"
    result = pytester.runpytest_subprocess(*ARGUMENTS, pairs, "-n", "2", "--acceptance-json", out)
    result.assert_outcomes(passed=6, skipped=1)
    result.stdout.fnmatch_lines(["random *pass * 8.6±**"])
    (pair,) = read_valid("pytest", out)["pairs"].values()
    assert pair["verdict"] == "pass"


def test_naming_the_plugin_in_a_conftest_does_no_harm(pairs: Path, pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["harness.plugin"]')
    pytester.runpytest_subprocess(*ARGUMENTS, pairs).assert_outcomes(passed=6, skipped=1)


def test_a_run_without_pairs_imports_no_torch(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_light():
            assert "torch" not in sys.modules
            assert "transformers" not in sys.modules
        """
    )
    pytester.runpytest_subprocess(*ARGUMENTS).assert_outcomes(passed=1)
