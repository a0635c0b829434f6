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
from harness.engines.server.client import KEY_VARIABLE
from harness.engines.server.trust import HOSTS_VARIABLE
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


def test_a_key_is_sent_only_to_a_server_that_the_user_named(
    pairs: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pair file is what is tested, and not what the user says: it does not vouch for the server that it names."""
    file = pairs / "random.pair.toml"
    monkeypatch.setenv(KEY_VARIABLE, "secret-7")
    with serving(told_by(prepare(file)), "wants a key") as server:
        file.write_text(f'{file.read_text()}\n[engine]\nendpoint = "{server.endpoint}"\n')
        alone = pytester.runpytest_inprocess(*ARGUMENTS, pairs)
        named = pytester.runpytest_inprocess(*ARGUMENTS, pairs, "--acceptance-endpoint", server.endpoint)
        monkeypatch.setenv(HOSTS_VARIABLE, "127.0.0.1")
        listed = pytester.runpytest_inprocess(*ARGUMENTS, pairs)
    alone.assert_outcomes(failed=7)
    assert f"{KEY_VARIABLE} is not sent to an address that only the pair file names" in alone.stdout.str()
    named.assert_outcomes(passed=4, skipped=3)
    listed.assert_outcomes(passed=4, skipped=3)
    assert not any("secret-7" in result.stdout.str() for result in (alone, named, listed))
