"""Bad input: one paragraph that says where, what was found and what to do; exit 2; nothing written."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import huggingface_hub.constants
import pytest
from rich.table import Table

from harness.cli.app import main
from harness.cli.output import print_report
from harness.errors import InputError
from harness.files import replacing, write_atomically
from harness.report.bodies.base import error_details, plain
from suites.support.command import Answer, Command
from suites.support.damage import DAMAGES, GOLDEN, Damage, edit_json, edit_tensors, replace_text, snapshot


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Leave the checkout, ask no hub for a name that looks like an id, and see what libraries log on stderr."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    for name in ("transformers", "huggingface_hub"):
        for handler in logging.getLogger(name).handlers:
            if type(handler) is logging.StreamHandler:
                monkeypatch.setattr(handler, "stream", _Stderr())


class _Stderr(io.StringIO):
    """Whatever stderr is when something is written: a handler keeps the stream of the day it was made."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)


@pytest.fixture(scope="module")
def result(recorded_folder: Path) -> str:
    """What measuring the recorded pair prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["measure", str(recorded_folder / "random.pair.toml"), "--json"]) == 0
    return out.getvalue()


def _arguments(options: tuple[str, ...], file: Path) -> list[str]:
    names = {"PAIR": str(file), "RESULT": str(file.parent / "result.json")}
    return [names.get(option, option) for option in options]


def _paragraph(outcome: Answer) -> str:
    """Return the one paragraph that an error is on stderr."""
    assert outcome.err.startswith("error: "), outcome.err
    assert outcome.err.count("\n") == 1, outcome.err
    assert outcome.err.endswith(".\n"), outcome.err
    assert "Traceback" not in outcome.err + outcome.out
    assert outcome.err.rstrip("\n").isprintable(), outcome.err
    return outcome.err.removeprefix("error: ").rstrip("\n")


@pytest.mark.parametrize("damage", DAMAGES, ids=[damage.name.replace(" ", "-") for damage in DAMAGES])
def test_bad_input_is_told_in_one_paragraph(damage: Damage, recorded: Path, result: str, harness: Command) -> None:
    (recorded.parent / "result.json").write_text(result)
    damage.apply(recorded.parent)
    before = snapshot(recorded.parent)
    arguments = _arguments(damage.options, recorded)
    plain, as_json = harness(*arguments), harness(*arguments, "--json")
    assert snapshot(recorded.parent) == before
    assert (plain.status, as_json.status) == (2, 2), plain.err
    text = _paragraph(plain)
    assert plain.out == ""
    for part in damage.says:
        assert part in text
    assert "expected " in text or "Next: " in text
    assert len(text) < 1500
    assert as_json.err == plain.err
    assert set(as_json.json) == {"schema_version", "error"}
    error = as_json.json["error"]
    assert (error["message"], error["exit_code"]) == (text, 2)
    assert error["type"] in ("InputError", "UsageError")


def test_an_error_is_one_printable_line_whatever_it_is_told() -> None:
    nested: list[Any] = []
    for _ in range(5000):
        nested = [nested]
    texts = ["a\n\nb", "\x1b[31m", "\ud800", "x" * 10_000, ""]
    errors = [InputError(text, file=text, key=text, found=text, expected=text, next_step=text) for text in texts[:3]]
    errors += [InputError("p", file=text, key=text, found=text, expected=text, next_step=text) for text in texts[3:]]
    errors += [InputError("p", key="k", found=value) for value in (10**5000, nested, b"\0", ["a\n"])]
    for error in errors:
        assert str(error).isprintable()
        assert len(str(error)) < 2000
        details = plain(error_details(error, str(error), error.exit_code))
        assert json.loads(json.dumps(details))["message"] == str(error)


def test_the_table_covers_each_name_once() -> None:
    assert len({damage.name for damage in DAMAGES}) == len(DAMAGES)


def test_the_undamaged_pair_passes(recorded: Path, harness: Command) -> None:
    before = snapshot(recorded.parent)
    outcome = harness("check", recorded, "--json")
    assert (outcome.status, outcome.json["verdict"], outcome.err) == (0, "pass", "")
    assert snapshot(recorded.parent) == before


@pytest.mark.parametrize("group", [(), ("golden",)])
def test_no_command_is_told_too(group: tuple[str, ...], harness: Command) -> None:
    outcome = harness(*group)
    assert (outcome.status, outcome.out) == (2, "")
    assert _paragraph(outcome) == "Missing command. Next: see --help."


def test_debug_shows_the_traceback_and_then_the_paragraph(recorded: Path, harness: Command) -> None:
    (recorded.parent / "prompts.jsonl").unlink()
    outcome = harness("check", recorded, "--debug")
    assert outcome.status == 2
    assert outcome.err.startswith("Traceback (most recent call last)")
    assert outcome.err.splitlines()[-1].startswith("error: ")
    assert harness("check", recorded, "--debug", "--json").json["error"]["type"] == "InputError"


# What is no bad input


@pytest.mark.parametrize("ids", [[0, 1, 3], [-1, 2, 3], [3, 1, -1], [0, 2, 3], [1, 1, 1]])
def test_a_wrong_wire_of_the_right_width_is_measured(ids: list[int], recorded: Path, harness: Command) -> None:
    config = recorded.parent / "draft/config.json"
    edit_json(config, lambda body: body["eagle_config"].update(eagle_aux_hidden_state_layer_ids=ids))
    outcome = harness("check", recorded, "--json")
    # Six prompts of a random pair cannot always decide a drop: that is a measured answer too.
    assert outcome.status in (0, 1, 3)
    assert outcome.err == ""
    assert outcome.json["verdict"] in ("changed", "regression", "inconclusive")
    replace_text(recorded, "floor = 0.0", "floor = 0.0\nstrict = true")
    strict = harness("check", recorded, "--json")
    assert strict.status == 1
    assert strict.json["acceptance"] == outcome.json["acceptance"]


def test_a_map_that_runs_and_is_wrong_is_a_broken_contract(recorded: Path, harness: Command) -> None:
    edit_tensors(recorded.parent / "draft/model.safetensors", lambda tensors: tensors["d2t"].__setitem__(9, -9))
    outcome = harness("check", recorded, "--json")
    assert outcome.status == 1
    assert outcome.json["detectors"]["contract"]["verdict"] == "regression"


def test_a_target_config_may_say_how_it_wants_to_be_called(recorded: Path, harness: Command) -> None:
    flags = {"use_cache": False, "output_hidden_states": True, "output_attentions": True}
    edit_json(recorded.parent / "target/config.json", lambda body: body.update(flags))
    outcome = harness("check", recorded, "--json")
    assert (outcome.status, outcome.json["verdict"], outcome.err) == (0, "pass", "")


@pytest.mark.parametrize("category", ["[/b]", "[red]", "a\nb", "\u00e9\u4e2d", "\x1b[31m", ""])
def test_a_category_is_any_text(category: str, recorded: Path, harness: Command) -> None:
    prompts = recorded.parent / "prompts.jsonl"
    lines = [json.loads(line) | {"category": category} for line in prompts.read_text().splitlines()]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert list(harness("measure", recorded, "--json").json["categories"]) == [category]
    outcome = harness("measure", recorded)
    assert (outcome.status, outcome.err) == (0, "")
    assert category.strip() in outcome.out or not category.isprintable()
    assert "\x1b" not in outcome.out


def test_brackets_in_a_name_are_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("[b]name[/b]")
    table.add_row("[/b] :smile: [red]")
    print_report(table)
    assert "[/b] :smile: [red]" in capsys.readouterr().out


# Failures that are nobody's input


def _failing(error: BaseException) -> Callable[..., NoReturn]:
    def fail(*_: Any, **__: Any) -> NoReturn:
        raise error

    return fail


def test_a_fault_of_the_engine_is_exit_4_without_a_traceback(
    recorded: Path, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "harness.engines.reference.engine.replay", _failing(RuntimeError("shapes differ\n  at block 3"))
    )
    before = snapshot(recorded.parent)
    outcome = harness("check", recorded)
    assert outcome.status == 4
    text = _paragraph(outcome)
    assert "RuntimeError: shapes differ at block 3" in text
    assert "--debug" in text
    as_json = harness("check", recorded, "--json")
    assert as_json.status == 4
    error = {name: value for name, value in as_json.json["error"].items() if value is not None}
    assert error == {"message": text, "exit_code": 4, "type": "RuntimeError"}
    debug = harness("check", recorded, "--debug")
    assert debug.err.startswith("Traceback (most recent call last)")
    assert snapshot(recorded.parent) == before


_MOMENTS = {
    "loading": "harness.engines.reference.loaded.load_target",
    "decoding": "harness.engines.reference.engine.greedy_continuations",
    "replaying": "harness.engines.reference.engine.replay_all",
    "measuring noise": "harness.engines.reference.engine.measure_noise",
    "writing": "harness.files.os.fsync",
}


@pytest.mark.parametrize("moment", _MOMENTS)
@pytest.mark.parametrize("first", [True, False], ids=["first", "again"])
def test_an_interrupt_leaves_nothing_half_written(
    moment: str, first: bool, recorded: Path, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    if first:
        shutil.rmtree(recorded.parent / "golden")
    # Another text, so that nothing written could happen to equal the golden before.
    replace_text(recorded, "max_new_tokens = 24", "max_new_tokens = 23")
    before = snapshot(recorded.parent)
    monkeypatch.setattr(_MOMENTS[moment], _failing(KeyboardInterrupt()))
    outcome = harness("record", recorded, "--reason", "shorter", "--json")
    assert outcome.status == 130
    assert outcome.err == "error: interrupted; nothing was written.\n"
    assert outcome.json["error"]["type"] == "Interrupted"
    assert snapshot(recorded.parent) == before


def test_an_interrupt_between_the_two_files_leaves_the_golden_before(
    recorded: Path, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_text(recorded, "max_new_tokens = 24", "max_new_tokens = 23")
    before = snapshot(recorded.parent)
    written: list[str] = []

    def once(path: Path, data: bytes) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(path.name)
        write_atomically(path, data)

    monkeypatch.setattr("harness.golden.store.write_atomically", once)
    assert harness("record", recorded, "--reason", "shorter").status == 130
    assert written[0].endswith(".safetensors")
    assert snapshot(recorded.parent) == before


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
def test_control_c_in_a_real_process(recorded: Path) -> None:
    shutil.rmtree(recorded.parent / "golden")
    before = snapshot(recorded.parent)
    command = [sys.executable, "-c", _SIGNALLED, "record", str(recorded)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "replaying\n"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (130, "", "error: interrupted; nothing was written.\n")
    assert snapshot(recorded.parent) == before


_SIGNALLED = """
import signal
import time
import harness.engines.reference.engine as engine
from harness.cli.app import run

def replay(*_, **__):
    print("replaying", flush=True)
    time.sleep(60)

engine.replay_all = replay
# A shell that runs the tests in the background has its children ignore the signal.
signal.signal(signal.SIGINT, signal.default_int_handler)
run()
"""


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("harness.files.tempfile.mkstemp", PermissionError(errno.EACCES, "Permission denied")),
        ("pathlib.Path.write_bytes", OSError(errno.ENOSPC, "No space left on device")),
        ("harness.files.os.fsync", OSError(errno.EIO, "Input/output error")),
        ("pathlib.Path.replace", OSError(errno.EROFS, "Read-only file system")),
    ],
)
@pytest.mark.parametrize("first", [True, False], ids=["first", "again"])
def test_a_disk_that_refuses(
    call: str, error: OSError, first: bool, recorded: Path, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    if first:
        shutil.rmtree(recorded.parent / "golden")
    replace_text(recorded, "max_new_tokens = 24", "max_new_tokens = 23")
    before = snapshot(recorded.parent)
    monkeypatch.setattr(call, _failing(error))
    outcome = harness("record", recorded, "--reason", "shorter")
    monkeypatch.undo()
    assert outcome.status == 2, outcome.err
    text = _paragraph(outcome)
    assert "golden/random" in text
    assert str(error.strerror) in text
    assert "Next: " in text
    assert snapshot(recorded.parent) == before


@pytest.mark.skipif(getattr(os, "geteuid", int)() == 0, reason="root may write anywhere")
def test_a_golden_folder_without_permission(recorded: Path, harness: Command) -> None:
    folder = (recorded.parent / GOLDEN).parent
    folder.chmod(0o500)
    try:
        outcome = harness("record", recorded, "--reason", "new")
    finally:
        folder.chmod(0o700)
    assert outcome.status == 2
    assert "cannot be written" in _paragraph(outcome)


def test_an_unwritable_golden_folder_is_told_before_the_pair_is_run(
    recorded: Path, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(recorded.parent / "golden")
    (recorded.parent / "golden").write_text("a file")
    monkeypatch.setattr("harness.engines.reference.loaded.load_target", _failing(RuntimeError("was run")))
    outcome = harness("record", recorded)
    assert outcome.status == 2
    assert "cannot be written" in _paragraph(outcome)


def test_what_is_replaced_stays_whole_where_the_name_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        write_atomically(tmp_path / "taken", b"x")
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "new") as part:
        part.write_bytes(bytes(1 // 0))
    assert [path.name for path in tmp_path.iterdir() if path.name != "pair"] == ["taken"]


def test_json_is_printed_where_stdout_knows_no_unicode(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edit_json(recorded.parent / "draft/config.json", lambda body: body.update(architectures=["\u00e9"]))
    with io.TextIOWrapper(io.BytesIO(), encoding="ascii") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(["check", str(recorded), "--json"]) == 2
        stream.seek(0)
        assert json.loads(stream.read())["error"]["found"].startswith("['\u00e9']")


def test_a_reader_that_goes_away_is_no_error(recorded: Path) -> None:
    prompts = recorded.parent / "prompts.jsonl"
    prompts.write_text(prompts.read_text().replace('"category": "a"', '"category": "\u00e9"'))
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        [sys.executable, "-m", "harness", "check", str(recorded)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment | {"PYTHONIOENCODING": "ascii"},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()


class _Gone(io.StringIO):
    """A stdout whose reader has gone away."""

    def __init__(self, handle: int) -> None:
        super().__init__()
        self.handle = handle

    def write(self, _: str) -> int:
        raise BrokenPipeError

    def fileno(self) -> int:
        return self.handle


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_reader_that_goes_away_hides_no_regression(
    options: tuple[str, ...], recorded: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    config = recorded.parent / "draft/config.json"
    config.write_text(config.read_text().replace("[-1, 1, 3]", "[0, 1, 3]"))
    replace_text(recorded, "floor = 0.0", "floor = 0.0\nstrict = true")
    handle = os.open(os.devnull, os.O_WRONLY)
    monkeypatch.setattr(sys, "stdout", _Gone(handle))
    try:
        assert main(["check", str(recorded), *options]) == 1
    finally:
        os.close(handle)
    assert capfd.readouterr() == ("", "")


def test_a_hub_that_says_nothing_is_told(recorded: Path, harness: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.snapshot_download", _failing(OSError()))
    replace_text(recorded, 'target = "target"', 'target = "nowhere/target"')
    outcome = harness("check", recorded)
    assert outcome.status == 2
    assert "found nowhere/target" in _paragraph(outcome)
