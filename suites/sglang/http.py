"""The real SGLang HTTP server on the CPU, as a user starts it: a command with flags, in a session of its own."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.engines.sglang.arguments import server_arguments
from harness.engines.sglang.engine import cache_tokens
from harness.engines.shared.sglang_target import WAVE
from harness.pair.pair import Pair
from suites.sglang.serving import PATIENCE

__all__ = ["Served", "flags", "http_server"]


@dataclass(frozen=True)
class Served:
    """A running server.

    Attributes:
        endpoint: Its address.
        pid: Its first process, which leads the session of all.
        log: What it prints.
    """

    endpoint: str
    pid: int
    log: Path


def flags(arguments: dict[str, Any]) -> list[str]:
    """Return arguments of SGLang's `ServerArgs` as flags of its command."""
    written = []
    for name, value in arguments.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            written.append(flag)
        elif value is not False:
            written += [flag, str(value)]
    return written


@contextlib.contextmanager
def http_server(pair: Pair, folder: Path, **changes: Any) -> Iterator[Served]:
    """Start a server for a pair and end its whole process tree when the block is left.

    Args:
        pair: The pair.
        folder: Where its log goes.
        **changes: Of its arguments.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = server_arguments(pair, running=WAVE, tokens=cache_tokens([], pair.limits))
    # A server without requests would take a core of its own.
    arguments |= {"host": "127.0.0.1", "port": port, "sleep_on_idle": True, "skip_server_warmup": True} | changes
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "sglang.launch_server", *flags(arguments)],
            env=importlib.import_module("sglang_cpu_platform").environment(dict(os.environ)),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    served = Served(f"http://127.0.0.1:{port}", process.pid, log)
    try:
        _wait(process, served)
        yield served
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(process: subprocess.Popen[bytes], served: Served) -> None:
    deadline = time.monotonic() + PATIENCE.start
    while "ready to roll" not in served.log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"the server did not start:\n{served.log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.2)
    # It answers: nothing of what follows is the network's fault.
    with urllib.request.urlopen(f"{served.endpoint}/model_info", timeout=30) as answer:  # noqa: S310 - our own server
        assert answer.status == 200
