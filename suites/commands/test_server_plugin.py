"""A running server under pytest: each pair file's tests ask the one that the option names."""

from __future__ import annotations

import shutil
from pathlib import Path

# An in-process run forgets every module that it was the first to import, and httpx maps the errors of the httpcore that
# it met first: later tests would see raw ones.
import httpcore  # noqa: F401
import pytest

from harness.cli.app import main
from harness.commands.prepare import prepare
from suites.support.faulty_server import serving, told_by
from suites.support.random_pair import SERVABLE, write_pair

ARGUMENTS = ("-p", "no:cacheprovider")


@pytest.fixture
def pairs(tmp_path_factory: pytest.TempPathFactory, pytester: pytest.Pytester) -> Path:
    """The folder of a recorded pair, as pytester's own."""
    folder = tmp_path_factory.mktemp("pairs")
    assert main(["record", str(write_pair(folder, draft=SERVABLE)), "--json"]) == 0
    return Path(shutil.copytree(folder, pytester.path / "pairs"))


def test_the_option_names_the_server(pairs: Path, pytester: pytest.Pytester) -> None:
    with serving(told_by(prepare(pairs / "random.pair.toml"))) as server:
        result = pytester.runpytest_inprocess(*ARGUMENTS, pairs, "--acceptance-endpoint", server.endpoint)
        streamed = sum(bool(body.get("stream")) for body in server.bodies)
    result.assert_outcomes(passed=4, skipped=3)
    # One measurement for all tests of the pair.
    assert streamed == 6
    result.stdout.fnmatch_lines(["random *pass *server:sglang cpu float32*"])


def test_a_server_that_fails_fails_every_test_with_its_paragraph(pairs: Path, pytester: pytest.Pytester) -> None:
    with serving(told_by(prepare(pairs / "random.pair.toml")), "answers 500 to everything") as server:
        result = pytester.runpytest_inprocess(*ARGUMENTS, pairs, "--acceptance-endpoint", server.endpoint)
    result.assert_outcomes(failed=7)
    assert "status 500" in result.stdout.str()
    assert "Traceback" not in result.stdout.str()


def test_no_golden_is_recorded_from_a_server(pairs: Path, pytester: pytest.Pytester) -> None:
    before = {file: file.read_bytes() for file in (pairs / "golden").rglob("*.json")}
    with serving(told_by(prepare(pairs / "random.pair.toml")), "counts nothing") as server:
        options = ("--acceptance-update", "--acceptance-reason", "new", "--acceptance-endpoint", server.endpoint)
        result = pytester.runpytest_inprocess(*ARGUMENTS, pairs, *options)
    assert result.ret == 1
    assert before == {file: file.read_bytes() for file in (pairs / "golden").rglob("*.json")}
    assert len(before) == 1
