"""An SGLang engine in a process tree of its own: started, asked, watched over, and ended on every exit."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from harness.engines.sglang.watch import STATES_SWITCH
from harness.errors import EngineError, InputError

__all__ = ["DRIVER", "Patience", "RunningEngine", "launched"]

DRIVER = (sys.executable, "-m", "harness.engines.sglang.driver")
_TAIL_LINES = 25
_ERROR_LINE = re.compile(r"^[\w.]*(?:Error|Exception)\b.*")
_SLICE = 0.5
_FAREWELL = 15.0


@dataclass(frozen=True)
class Patience:
    """How long the engine may give no sign of life: no answer, no verify round and no further line in its log.

    Attributes:
        start: Seconds of silence until it is ready; loading and compiling are told in its log.
        silence: Seconds of silence at a request.
        whole_start: Seconds from its start until it is ready, however much it says meanwhile.
    """

    start: float = 600.0
    silence: float = 300.0
    whole_start: float = 3600.0


@contextlib.contextmanager
def launched(
    arguments: Mapping[str, Any],
    *,
    environment: Mapping[str, str],
    folder: Path,
    watch: Path,
    patience: Patience,
    command: Sequence[str] = DRIVER,
) -> Iterator[RunningEngine]:
    """Start an engine and end its whole process tree when the block is left, however it is left.

    The processes are a session of their own, so that a signal to the harness' terminal reaches the harness alone. When
    the harness is killed, its end of the driver's stdin closes, and the driver ends the tree.

    Args:
        arguments: Of SGLang's `ServerArgs`.
        environment: Of its processes.
        folder: Where its log is kept.
        watch: Where its hooks write.
        patience: How long to wait.
        command: The driver.

    Raises:
        InputError: SGLang does not take the arguments.
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
    engine = RunningEngine(process, ours, log, watch, patience)
    try:
        engine.start(arguments)
        yield engine
        engine.part()
    finally:
        engine.end()


class RunningEngine:
    """The harness' end of a started engine.

    Args:
        process: The driver.
        answers: The file descriptor that it answers on.
        log: What it prints.
        watch: Where its hooks write.
        patience: How long to wait.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], answers: int, log: Path, watch: Path, patience: Patience
    ) -> None:
        self._process = process
        self._answers = answers
        self._buffer = b""
        self._patience = patience
        self._failed = False
        self.log = log
        self.watch = watch

    @property
    def pid(self) -> int:
        """The driver's process, which leads the session and group of the whole tree."""
        return self._process.pid

    def start(self, arguments: Mapping[str, Any]) -> None:
        """Hand over the arguments and wait until the engine is ready; see `launched`."""
        self._send(arguments)
        answer = self._receive(self._patience.start, "start", most=self._patience.whole_start)
        if "refused" in answer:
            raise InputError(
                "SGLang does not take these arguments",
                key="engine.args",
                found=answer["refused"],
                next_step=f"see its log, {self.log}",
            )
        if "ready" not in answer:
            self._fail(f"answered its start with {answer}")

    def generate(self, **arguments: Any) -> list[dict[str, Any]]:
        """Return `output_ids` and `meta_info` of each prompt.

        Args:
            **arguments: Of SGLang's `Engine.generate`, with lists: one entry a prompt.

        Raises:
            EngineError: The engine refuses, dies or stays silent.
        """
        return self._ask({"generate": arguments})

    def flush_cache(self) -> None:
        """Have the engine forget every prefix that it knows."""
        self._ask({"flush_cache": {}})

    @contextlib.contextmanager
    def writing_states(self) -> Iterator[None]:
        """Have the hooks write what the draft's `fc` receives, while the block runs."""
        switch = self.watch / STATES_SWITCH
        switch.touch()
        try:
            yield
        finally:
            switch.unlink()

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

    def _ask(self, request: Mapping[str, Any]) -> list[dict[str, Any]]:
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
        """Return the next answer, within `most` seconds; whatever is written meanwhile begins the patience anew."""
        begun = time.monotonic()
        deadline = begun + patience
        written = self._written()
        while b"\n" not in self._buffer:
            # Never of no length at all: that would look as if nothing could come any more.
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
            self._fail(f"answered what is no JSON object: {line[:200]!r}")
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
        """Return the bytes of the log and of what the hooks have written."""
        return sum(file.stat().st_size for file in (self.log, *self.watch.glob("*.jsonl")))

    def _fail_dead(self) -> NoReturn:
        self._fail("died", status=self._kill())

    def _kill(self) -> int:
        """Kill the process group and return the driver's exit status."""
        # Once the driver has been waited for, its id may be somebody else's.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()

    def _fail(self, what: str, status: int | None = None) -> NoReturn:
        self._failed = True
        lines = [line.rstrip() for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines()]
        tail = [line for line in lines if line][-_TAIL_LINES:]
        errors = [line for line in lines if _ERROR_LINE.match(line)]
        parts = [f"SGLang {what}"]
        if errors:
            parts.append(f"the last error in its log is {errors[-1]}")
        elif status is not None:
            parts.append(f"exit status {status}")
        parts.append(f"its log is {self.log}, the end of it:")
        raise EngineError("\n".join(["; ".join(parts), *(f"  {line[:300]}" for line in tail)]))
