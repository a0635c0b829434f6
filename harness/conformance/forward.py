"""Runs real model classes of the installed SGLang, one process for each, and asks which states they capture.

Each class has a process of its own: an error inside SGLang may end the process, and everything that a class leaves
behind ends with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from harness.conformance.asked import NUM_LAYERS, WHOLE_ENGINE, AskedIds
from harness.conformance.matrix import ForwardAnswer
from harness.conformance.targets import RUNNABLE
from harness.conformance.whole import run_whole
from harness.engines.sglang.installed import cpu_environment
from harness.errors import EngineError, one_line
from harness.facts.reading.setters import CaptureOutcome

__all__ = ["ForwardSession", "run_forwards"]

_LOAD_SECONDS = 240.0
_ANSWER_SECONDS = 120.0
_LIFE_SECONDS = 3600


class ForwardSession:
    """Context manager: a process that runs one real class with a tiny target of random weights.

    Args:
        architecture: One of `harness.conformance.targets.RUNNABLE`.
        num_layers: The target's number of decoder blocks, N.

    Raises:
        EngineError: The class cannot be loaded or run here, with SGLang's own reason; raised on entering.
    """

    def __init__(self, architecture: str, num_layers: int = NUM_LAYERS) -> None:
        self.architecture = architecture
        self.num_layers = num_layers
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opening:
            folder = Path(opening.enter_context(tempfile.TemporaryDirectory(prefix="harness-conformance-")))
            self._log: IO[str] = opening.enter_context((folder / "log").open("w+"))
            target = [self.architecture, str(self.num_layers), str(folder / "target")]
            self._child = subprocess.Popen(  # noqa: S603 - this interpreter, with our own module
                [sys.executable, "-m", "harness.conformance.child", *target, str(_LIFE_SECONDS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                env=_environment(),
            )
            opening.callback(self._end)
            loaded = self._answer(_LOAD_SECONDS)
            if "failed" in loaded:
                raise EngineError(one_line(str(loaded["failed"]), 300))
            self._open = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def _end(self) -> None:
        self._child.kill()
        self._child.wait()
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def ask(self, ids: Sequence[int] | None) -> CaptureOutcome:
        """Return the states that the class captures for layer ids, `None` for its default.

        Raises:
            EngineError: The process died, or did not answer in time.
        """
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps({"ids": None if ids is None else list(ids)}) + "\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None
        answer = self._answer(_ANSWER_SECONDS)
        if "error" in answer:
            return CaptureOutcome(None, one_line(answer["error"], 300))
        return CaptureOutcome(tuple(answer["boundaries"]))

    def _answer(self, seconds: float) -> dict[str, Any]:
        stream = self._child.stdout
        assert stream is not None
        with selectors.DefaultSelector() as waiting:
            waiting.register(stream, selectors.EVENT_READ)
            # One answer is written for each question, so none can be left in the stream's own buffer.
            if not waiting.select(seconds):
                raise EngineError(f"{self.architecture} did not answer within {seconds:.0f} s")
        line = stream.readline()
        if not line:
            raise self._died()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _died(self) -> EngineError:
        self._child.wait()
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().splitlines() if line.strip()]
        last = one_line(lines[-1], 300) if lines else "its log is empty"
        return EngineError(f"{self.architecture}'s process ended with {self._child.returncode}: {last}")


def _environment() -> dict[str, str]:
    paths = os.pathsep.join(filter(None, sys.path))
    # Nothing is imported from the folder that the process starts in.
    ours = {"PYTHONPATH": paths, "PYTHONSAFEPATH": "1", "CUDA_VISIBLE_DEVICES": ""}
    # A config that names a hub id must not cause a download.
    return cpu_environment({**os.environ, **ours, "HF_HUB_OFFLINE": "1"})


def run_forwards(architecture: str, asked: Sequence[AskedIds], *, whole: bool = False) -> ForwardAnswer:
    """Ask the real class for every list; the answer of a class that does not run is the reason.

    Args:
        architecture: The name of the class.
        asked: The lists of layer ids.
        whole: Whether a whole engine is started as well, for the list `WHOLE_ENGINE`, if the forward ran.
    """
    if architecture not in RUNNABLE:
        return ForwardAnswer({}, "there is no tiny target for it: transformers lacks the class, or it needs images")
    outcomes: dict[str, CaptureOutcome] = {}
    try:
        with ForwardSession(architecture) as session:
            for entry in asked:
                outcomes[entry.name] = session.ask(entry.ids)
    except EngineError as error:
        return ForwardAnswer(outcomes, str(error))
    if not whole:
        return ForwardAnswer(outcomes)
    (entry,) = [entry for entry in asked if entry.name == WHOLE_ENGINE]
    received = run_whole(architecture, entry)
    if isinstance(received, str):
        return ForwardAnswer(outcomes, f"a whole engine did not run: {received}")
    return ForwardAnswer(outcomes, whole={entry.name: received})
