"""A server that runs the command line in forked children and kills them: for tests of what a sudden death leaves.

Importing torch takes seconds and a child must die a hundred times, so everything is loaded once, here, and each child
is a fork of it. A process of its own, because only one without threads forks safely, and pytest's may have some.

`python -m suites.support.forking ARGUMENTS` runs the command once to load what it needs. Then each line on stdin is a
`Task` as JSON, and each line on stdout the `Ending` of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import multiprocessing
import subprocess
import sys
import threading
import time
import unittest.mock
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# Far longer than any child takes: for one that hangs.
_PATIENCE = 120.0


@dataclasses.dataclass(frozen=True)
class Task:
    """One child.

    Attributes:
        arguments: What the command line is given.
        kill_after: Seconds until SIGKILL; `None` lets it end.
        writing: Whether these are counted from the moment at which it begins to write a golden, not from its start.
    """

    arguments: list[str]
    kill_after: float | None = None
    writing: bool = False


@dataclasses.dataclass(frozen=True)
class Ending:
    """How a child ended.

    Attributes:
        status: Its exit status, negative for a signal.
        seconds: How long it lived.
        wrote: How long it took to write the golden, where it came to the end of that.
        output: What it printed, where it came to the end of that.
    """

    status: int
    seconds: float
    wrote: float | None
    output: str


class Server:
    """The test's end of a running server."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, task: Task) -> Ending:
        """Have a child run and return how it ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(dataclasses.asdict(task)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the server is gone"
        return Ending(**json.loads(line))


@contextlib.contextmanager
def forking(*arguments: str) -> Iterator[Server]:
    """Start a server whose children begin with everything loaded that this command loads."""
    command = [sys.executable, "-m", "suites.support.forking", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Server(process)
        finally:
            process.kill()


def _child(arguments: list[str], pipe: Connection) -> None:
    from harness.cli.app import main
    from harness.golden.store import save_golden

    def save_and_tell(*values: Any) -> None:
        pipe.send({"writes": True})
        start = time.perf_counter()
        save_golden(*values)
        pipe.send({"wrote": time.perf_counter() - start})

    printed = io.StringIO()
    telling = unittest.mock.patch("harness.commands.record.save_golden", save_and_tell)
    with telling, contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        status = main(arguments)
    pipe.send({"output": printed.getvalue()})
    sys.exit(status)


def _run(task: Task) -> Ending:
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe()
    start = time.perf_counter()
    process = context.Process(target=_child, args=(task.arguments, theirs))
    process.start()
    theirs.close()
    if task.kill_after is not None:
        # A child that never comes to writing closes its end, which `poll` reports as well.
        if task.writing and mine.poll(_PATIENCE):
            _receive(mine)
        time.sleep(task.kill_after)
        process.kill()
    process.join(_PATIENCE)
    seconds = time.perf_counter() - start
    if process.exitcode is None:
        process.kill()
        process.join()
    assert process.exitcode is not None
    told: dict[str, Any] = {}
    while message := _receive(mine):
        told |= message
    mine.close()
    return Ending(process.exitcode, seconds, told.get("wrote"), told.get("output", ""))


def _receive(pipe: Connection) -> dict[str, Any] | None:
    """Return the child's next message, `None` where it has sent all that it will."""
    try:
        message: dict[str, Any] = pipe.recv()
    except EOFError:
        return None
    return message


def _serve() -> None:
    from harness.cli.app import main

    with contextlib.redirect_stdout(io.StringIO()):
        assert main(sys.argv[1:]) == 0
    assert threading.active_count() == 1, threading.enumerate()
    for line in sys.stdin:
        ending = _run(Task(**json.loads(line)))
        sys.stdout.write(json.dumps(dataclasses.asdict(ending)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
