"""Starting, asking and ending an engine, against a fake driver with every fault."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.engines.sglang.launch import RunningEngine, launched
from harness.engines.shared.process import Patience
from harness.errors import EngineError, InputError
from suites.support import SUPPORT

DRIVER = SUPPORT / "faulty_sglang_driver.py"


@contextlib.contextmanager
def _launched(folder: Path, fault: str, patience: Patience | None = None) -> Iterator[RunningEngine]:
    watch = folder / "watch"
    watch.mkdir()
    with launched(
        {"watch": str(watch)},
        environment=os.environ,
        folder=folder,
        watch=watch,
        patience=patience or Patience(30.0, 30.0),
        command=(sys.executable, str(DRIVER), fault),
    ) as engine:
        yield engine


def _child(folder: Path) -> int:
    """Return the process that the fake driver started."""
    first = (folder / "engine.log").read_text().splitlines()[0]
    return int(first.removeprefix("child "))


def _lives(pid: int) -> bool:
    """Whether a process runs; one that only nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _soon(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")


def test_one_start_serves_many_requests(tmp_path: Path) -> None:
    with _launched(tmp_path, "none") as engine:
        child = _child(tmp_path)
        assert _lives(child)
        for ids in ([1, 2], [3]):
            assert engine.generate(input_ids=ids) == [{"output_ids": ids, "meta_info": {}}]
    assert _soon(lambda: not _lives(child))
    assert engine.log.is_file()


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("dies at the start", "SGLang died; the last error in its log is RuntimeError: the wires are crossed"),
        ("prints garbage", "answered with something that is not a JSON object: b'Loading weights"),
        ("answers a list", "answered with something that is not a JSON object: b'[1, 2]'"),
    ],
)
def test_it_does_not_start(tmp_path: Path, fault: str, told: str) -> None:
    with pytest.raises(EngineError) as caught, _launched(tmp_path, fault):
        pytest.fail("it never was ready")
    assert told in str(caught.value)
    assert str(tmp_path / "engine.log") in str(caught.value)
    assert "goodbye" in str(caught.value) or fault != "dies at the start"
    assert caught.value.exit_code == 4
    assert _soon(lambda: not _lives(_child(tmp_path)))


def test_it_refuses_its_arguments(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such argument: colour"), _launched(tmp_path, "refuses"):
        pytest.fail("it never was ready")
    assert _soon(lambda: not _lives(_child(tmp_path)))


def test_it_hangs_at_the_start(tmp_path: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(EngineError, match="no sign of life for 1 seconds at its start"):  # noqa: SIM117
        with _launched(tmp_path, "hangs at the start", Patience(start=1.0)):
            pytest.fail("it never was ready")
    assert time.monotonic() - begun < 10
    assert _soon(lambda: not _lives(_child(tmp_path)))


def test_a_line_of_its_log_is_a_sign_of_life(tmp_path: Path) -> None:
    """A start of a second and a half, with patience for one second: a large checkpoint takes long to load."""
    begun = time.monotonic()
    with _launched(tmp_path, "loads slowly", Patience(start=1.0)) as engine:
        assert time.monotonic() - begun > 1.4
        assert engine.generate(input_ids=[5])[0]["output_ids"] == [5]


def test_a_start_has_an_end_whatever_it_says(tmp_path: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(EngineError, match="had not finished its start after 2 seconds"):  # noqa: SIM117
        with _launched(tmp_path, "loads for ever", Patience(start=1.0, whole_start=2.0)):
            pytest.fail("it never was ready")
    assert 1.9 < time.monotonic() - begun < 10
    assert _soon(lambda: not _lives(_child(tmp_path)))


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("dies in the middle", "the last error in its log is RuntimeError: the wires are crossed"),
        ("hangs in the middle", "no sign of life for 1 seconds at its request"),
        ("fails a request", "refused a request: ValueError: too long"),
    ],
)
def test_it_fails_in_the_middle(tmp_path: Path, fault: str, told: str) -> None:
    with _launched(tmp_path, fault, Patience(30.0, 1.0)) as engine, pytest.raises(EngineError) as caught:
        engine.generate(input_ids=[1])
    assert told in str(caught.value)
    assert _soon(lambda: not _lives(_child(tmp_path)))


def test_a_round_is_a_sign_of_life(tmp_path: Path) -> None:
    """Six rounds of a quarter of a second each, with patience for one second."""
    with _launched(tmp_path, "is slow and alive", Patience(30.0, 1.0)) as engine:
        assert engine.generate(input_ids=[5])[0]["output_ids"] == [5]


def test_it_does_not_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.engines.shared.process._FAREWELL", 0.5)
    with _launched(tmp_path, "does not part"):
        child = _child(tmp_path)
    assert _soon(lambda: not _lives(child))


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError, SystemExit])
def test_whatever_ends_the_block_ends_the_tree(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), _launched(tmp_path, "none") as engine:
        raise error
    assert _soon(lambda: not _lives(_child(tmp_path)))
    assert _soon(lambda: not _lives(engine.pid))


def test_the_terminals_interrupt_does_not_reach_the_tree(tmp_path: Path) -> None:
    """It is a session of its own: the harness decides what an interrupt means."""
    with _launched(tmp_path, "none") as engine:
        assert os.getsid(engine.pid) == engine.pid == os.getpgid(_child(tmp_path))
        assert os.getsid(engine.pid) != os.getsid(0)


# The real driver, whose first line never comes, so that it waits; SGLang is imported after that.
_DRIVER = """
import subprocess, sys
from harness.engines.sglang import driver
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
sys.stderr.write(f"{child.pid}\\n")
driver._main()
"""
# The harness: it holds the driver's stdin, and is killed.
_HARNESS = """
import subprocess, sys, time
driver = subprocess.Popen(
    [sys.executable, "-c", sys.argv[1], "1"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
)
sys.stdout.write(driver.stderr.readline().decode())
sys.stdout.flush()
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_driver_ends_its_group_when_the_harness_is_gone(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", _HARNESS, _DRIVER], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert _lives(child)
        parent.send_signal(number)
        parent.wait()
    assert _soon(lambda: not _lives(child), 20.0)
