"""An engine in a process tree of its own: started, asked, watched over, and ended on every exit.

The tree is led by a driver, a program that holds the engine. Requests go to its stdin and answers come on a pipe, one
line of JSON each; see `harness.engines.sglang.driver` for the lines.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from harness.errors import EngineError, InputError

__all__ = ["EngineProcess", "Patience", "started"]

_TAIL_LINES = 25
_ERROR_LINE = re.compile(r"^[\w.]*(?:Error|Exception)\b.*")
_SLICE = 0.5
_FAREWELL = 15.0


@dataclass(frozen=True)
class Patience:
    """How long an engine may give no sign of life: no answer, no verify round and no further line in its log.

    Attributes:
        start: Seconds of silence until it is ready; loading and compiling write to its log.
        silence: Seconds of silence during a request.
        whole_start: Seconds from its start until it is ready, however much it writes meanwhile.
    """

    start: float = 600.0
    silence: float = 300.0
    whole_start: float = 3600.0


@dataclass(frozen=True)
class Pipes:
    """What connects the harness to a driver.

    Attributes:
        process: The driver.
        answers: The file descriptor that it answers on.
        log: The file that it and its engine print to.
    """

    process: subprocess.Popen[bytes]
    answers: int
    log: Path


class EngineProcess:
    """The harness' end of a started engine.

    Args:
        pipes: What connects to its driver.
        name: The engine's name, for messages.
        patience: How long to wait.
        signs: Returns the files that grow as long as the engine is alive, besides its log.
    """

    def __init__(
        self, pipes: Pipes, *, name: str, patience: Patience, signs: Callable[[], Iterable[Path]] = tuple
    ) -> None:
        self._process = pipes.process
        self._answers = pipes.answers
        self._buffer = b""
        self._name = name
        self._patience = patience
        self._signs = signs
        self._failed = False
        self.log = pipes.log

    @property
    def pid(self) -> int:
        """The driver's process, which leads the session and group of the whole tree."""
        return self._process.pid

    def start(self, arguments: Mapping[str, Any]) -> None:
        """Hand over the arguments and wait until the engine is ready; see `started`."""
        self._send(arguments)
        answer = self._receive(self._patience.start, "start", most=self._patience.whole_start)
        if "refused" in answer:
            raise InputError(
                f"{self._name} does not accept these arguments",
                key="engine.args",
                found=answer["refused"],
                next_step=f"see its log, {self.log}",
            )
        if "ready" not in answer:
            self._fail(f"answered its start with {answer}")

    def part(self) -> None:
        """Ask the engine to shut down and wait for it; `end` ends what is left."""
        if self._failed:
            return
        # Whatever goes wrong here, the work is done.
        with contextlib.suppress(EngineError):
            self._send({"end": {}})
            deadline = time.monotonic() + _FAREWELL
            while self._read(deadline - time.monotonic()):
                pass

    def end(self) -> None:
        """Kill whatever of the process tree is left."""
        self._kill()
        os.close(self._answers)
        assert self._process.stdin is not None
        # A request that the driver never read may still be in the buffer.
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def ask(self, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the results of a request.

        Raises:
            EngineError: The engine refuses, dies or stays silent.
        """
        self._send(request)
        answer = self._receive(self._patience.silence, "request")
        if "failed" in answer:
            self._fail(f"refused a request: {answer['failed']}")
        results = answer.get("results")
        if not isinstance(results, list):
            self._fail(f"answered a request with {answer}")
        return results

    def _send(self, line: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            self._fail_dead()

    def _receive(self, patience: float, what: str, *, most: float = float("inf")) -> dict[str, Any]:
        """Return the next answer, within `most` seconds; whatever is written meanwhile restarts the patience."""
        begun = time.monotonic()
        deadline = begun + patience
        written = self._written()
        while b"\n" not in self._buffer:
            # Never zero: that would look as if nothing could come any more.
            if not self._read(max(1e-3, min(_SLICE, min(deadline, begun + most) - time.monotonic()))):
                self._fail_dead()
            now_written = self._written()
            if now_written != written:
                written, deadline = now_written, time.monotonic() + patience
            if b"\n" in self._buffer:
                break
            if time.monotonic() > deadline:
                self._fail(f"gave no sign of life for {patience:g} seconds at its {what}")
            if time.monotonic() > begun + most:
                self._fail(f"had not finished its {what} after {most:g} seconds")
        line, self._buffer = self._buffer.split(b"\n", 1)
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            self._fail(f"answered with something that is not a JSON object: {line[:200]!r}")
        return answer

    def _read(self, seconds: float) -> bool:
        """Read what the driver has answered within some seconds; return whether it may answer yet."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            if not selector.select(max(0.0, seconds)):
                return seconds > 0
        data = os.read(self._answers, 1 << 16)
        self._buffer += data
        return bool(data)

    def _written(self) -> int:
        """Return the bytes of the log and of the other signs of life."""
        return sum(file.stat().st_size for file in (self.log, *self._signs()))

    def _fail_dead(self) -> NoReturn:
        self._fail("died", status=self._kill())

    def _kill(self) -> int:
        """Kill the process group and return the driver's exit status."""
        # Once the driver has been waited for, its id may belong to another process.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()

    def _fail(self, what: str, status: int | None = None) -> NoReturn:
        self._failed = True
        lines = [line.rstrip() for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines()]
        tail = [line for line in lines if line][-_TAIL_LINES:]
        errors = [line for line in lines if _ERROR_LINE.match(line)]
        parts = [f"{self._name} {what}"]
        if errors:
            parts.append(f"the last error in its log is {errors[-1]}")
        elif status is not None:
            parts.append(f"exit status {status}")
        raise EngineError("; ".join(parts), log=self.log, tail=[line[:300] for line in tail])


_Engine = TypeVar("_Engine", bound="EngineProcess")


@contextlib.contextmanager
def started(
    command: Sequence[str],
    arguments: Mapping[str, Any],
    *,
    environment: Mapping[str, str],
    folder: Path,
    connect: Callable[[Pipes], _Engine],
) -> Iterator[_Engine]:
    """Start an engine and end its whole process tree when the block is left, however it is left.

    The processes are a session of their own, so that a signal to the harness' terminal reaches the harness alone. When
    the harness is killed, its end of the driver's stdin closes, and the driver ends the tree.

    Args:
        command: The driver; the file descriptor that it answers on is appended.
        arguments: The engine's arguments, which the driver is given first.
        environment: The environment of the processes.
        folder: Where the log is kept.
        connect: Makes the harness' end of the engine.

    Raises:
        InputError: The engine does not accept the arguments.
        EngineError: It dies or stays silent.
    """
    log = folder / "engine.log"
    ours, theirs = os.pipe()
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own driver
            [*command, str(theirs)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            pass_fds=(theirs,),
            start_new_session=True,
        )
    os.close(theirs)
    engine = connect(Pipes(process, ours, log))
    try:
        engine.start(arguments)
        yield engine
        engine.part()
    finally:
        engine.end()
