"""The real SGLang in a process tree of its own: its driver, its requests and the files that its hooks write."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.engines.sglang.watch import STATES_SWITCH
from harness.engines.shared.process import EngineProcess, Patience, Pipes, started

__all__ = ["DRIVER", "RunningEngine", "launched"]

DRIVER = (sys.executable, "-m", "harness.engines.sglang.driver")


class RunningEngine(EngineProcess):
    """The harness' end of a started SGLang.

    Args:
        pipes: What connects to its driver.
        watch: The folder that its hooks write to.
        patience: How long to wait.

    Attributes:
        watch: The folder that its hooks write to.
    """

    def __init__(self, pipes: Pipes, watch: Path, patience: Patience) -> None:
        super().__init__(pipes, name="SGLang", patience=patience, signs=lambda: watch.glob("*.jsonl"))
        self.watch = watch

    def generate(self, **arguments: Any) -> list[dict[str, Any]]:
        """Return `output_ids` and `meta_info` of each prompt.

        Args:
            **arguments: Those of SGLang's `Engine.generate`, with lists: one entry per prompt.

        Raises:
            EngineError: The engine refuses, dies or stays silent.
        """
        return self.ask({"generate": arguments})

    def flush_cache(self) -> None:
        """Have the engine forget every prefix that it has cached."""
        self.ask({"flush_cache": {}})

    @contextlib.contextmanager
    def writing_states(self) -> Iterator[None]:
        """Have the hooks write what the draft's `fc` receives, while the block runs."""
        switch = self.watch / STATES_SWITCH
        switch.touch()
        try:
            yield
        finally:
            switch.unlink()


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
    """Start SGLang and end its whole process tree when the block is left; see `harness.engines.shared.process.started`.

    Args:
        arguments: Those of SGLang's `ServerArgs`.
        environment: The environment of its processes.
        folder: Where its log is kept.
        watch: The folder that its hooks write to.
        patience: How long to wait.
        command: The driver.

    Raises:
        InputError: SGLang does not accept the arguments.
        EngineError: It dies or stays silent.
    """

    def connect(pipes: Pipes) -> RunningEngine:
        return RunningEngine(pipes, watch, patience)

    with started(command, arguments, environment=environment, folder=folder, connect=connect) as engine:
        yield engine
