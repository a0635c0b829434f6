"""The real engine fails: within the deadline, with what its log says, and with no process left."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.engines.base import Progress
from harness.engines.sglang.arguments import server_arguments
from harness.engines.sglang.engine import SglangEngine, decode, running_engine
from harness.engines.shared.process import Patience
from harness.errors import EngineError, InputError
from suites.sglang.serving import processes, rewired, serving, shorter
from suites.support.prompts import shortest

pytestmark = pytest.mark.slow


def _gone(session: int) -> bool:
    """Whether the whole tree ends; SIGKILL was sent, and the kernel takes a moment over each process."""
    return _soon(lambda: not processes(session), 10.0)


def _soon(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_the_scheduler_is_killed_during_a_run() -> None:
    pair = shorter("tiny", 96)
    prompts = shortest(pair, 4)
    killed: list[float] = []
    with serving(pair) as engine:
        names = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in processes(engine.pid)}
        assert len(names) > 2, names
        (scheduler,) = [pid for pid, name in names.items() if "scheduler" in name]

        def kill() -> None:
            # Once the first rounds are written, so that it is in the middle of a run.
            assert _soon(lambda: sum(file.stat().st_size for file in engine.watch.glob("*.jsonl")) > 2000, 60.0)
            killed.append(time.monotonic())
            os.kill(scheduler, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(EngineError, match="SGLang died") as caught:
            decode(engine, prompts, pair.limits)
    killer.join()
    assert time.monotonic() - killed[0] < 30
    assert _gone(engine.pid)
    assert str(engine.log) in str(caught.value)
    assert engine.log.is_file()


def test_a_boundary_that_the_loop_never_reaches(tmp_path: Path) -> None:
    """Llama's loop ends before boundary N: two states arrive where the draft's `fc` takes three."""
    pair = rewired(tmp_path, [1, 3, 7], 8)
    with pytest.raises(EngineError) as caught:
        SglangEngine(Patience(240.0, 120.0)).run(pair, shortest(pair, 1), None, Progress())
    text = str(caught.value)
    assert "SGLang died" in text
    assert "mat1 and mat2 shapes cannot be multiplied" in text
    assert "engine.log" in text


def test_an_argument_that_sglang_does_not_know() -> None:
    """Such as one that another release has, and that a pair file may set."""
    pair = shorter("tiny", 8)
    arguments = server_arguments(pair, running=1, tokens=4096) | {"no_such_argument": 1}
    with pytest.raises(InputError, match="no_such_argument"):  # noqa: SIM117
        with running_engine(pair, arguments, Patience(240.0, 120.0)):
            pytest.fail("it takes an argument that it does not have")


def test_the_deadline_of_the_start_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = shorter("tiny", 8)
    arguments = server_arguments(pair, running=1, tokens=4096)
    started = _started(monkeypatch)
    begun = time.monotonic()
    with pytest.raises(EngineError, match="had not finished its start after 3 seconds"):  # noqa: SIM117
        with running_engine(pair, arguments, Patience(whole_start=3.0)):
            pytest.fail("it cannot be ready by now")
    assert time.monotonic() - begun < 15
    assert _gone(started[0].pid)


def _started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Return a list to which every process that is started from now on is added."""
    started = []
    original = subprocess.Popen

    def start(*arguments: Any, **keywords: Any) -> subprocess.Popen[bytes]:
        started.append(original(*arguments, **keywords))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    return started
