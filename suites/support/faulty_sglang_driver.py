"""A FAKE driver for the tests of `harness.engines.sglang.launch`: no SGLang, only the ways in which one goes wrong.

`python faulty_sglang_driver.py FAULT FD`, see `harness.engines.sglang.driver` for what a driver answers.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FAULT, ANSWERS = sys.argv[1], os.fdopen(int(sys.argv[2]), "w")


def _say(text: str) -> None:
    ANSWERS.write(text + "\n")
    ANSWERS.flush()


def _log(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _refuse() -> None:
    _say(json.dumps({"refused": "no such argument: colour"}))
    sys.exit(1)


def _forever() -> None:
    while True:
        time.sleep(60)


def _die() -> None:
    _log("Traceback (most recent call last):\nRuntimeError: the wires are crossed\ngoodbye")
    os.kill(os.getpid(), signal.SIGKILL)


def _load(lines: int) -> None:
    for line in range(lines):
        time.sleep(0.25)
        _log(f"Loading safetensors checkpoint shards: {line}")


def _main() -> None:
    # The rest of the tree: SGLang's schedulers ignore the terminal's signals too.
    child = subprocess.Popen(
        [sys.executable, "-c", "import signal, time; signal.signal(2, signal.SIG_IGN); time.sleep(600)"]
    )
    _log(f"child {child.pid}")
    arguments = json.loads(sys.stdin.readline())
    faults: dict[str, Any] = {
        "dies at the start": _die,
        "hangs at the start": _forever,
        "loads slowly": lambda: _load(6),
        "loads for ever": lambda: _load(1_000),
        "refuses": _refuse,
        "prints garbage": lambda: _say("Loading weights…"),
        "answers a list": lambda: _say("[1, 2]"),
    }
    faults.get(FAULT, lambda: None)()
    _say(json.dumps({"ready": 0.1}))
    for line in sys.stdin:
        request = json.loads(line)
        if "end" in request:
            if FAULT == "does not part":
                _forever()
            child.kill()
            return
        if FAULT == "dies in the middle":
            _die()
        if FAULT == "hangs in the middle":
            _forever()
        if FAULT == "fails a request":
            _say(json.dumps({"failed": "ValueError: too long"}))
            continue
        if FAULT == "is slow and alive":
            for beat in range(6):
                time.sleep(0.25)
                (Path(arguments["watch"]) / "watch-1.jsonl").write_text("x" * beat)
        _say(json.dumps({"results": [{"output_ids": request["generate"]["input_ids"], "meta_info": {}}]}))


_main()
