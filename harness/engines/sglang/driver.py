"""The program that holds an SGLang engine: requests come as lines of JSON on stdin, answers go to a pipe.

`python -m harness.engines.sglang.driver FD`: answers are written to the descriptor FD, a line of JSON each. Stdout and
stderr are SGLang's. The first line on stdin holds the arguments of the engine, each further one a request:

- `{"generate": {…}}`: keyword arguments of `Engine.generate`; the answer is
  `{"results": [{"output_ids": […], "meta_info": {…}}]}`
- `{"flush_cache": {}}`: the answer is `{"results": []}`
- `{"end": {}}`: the engine is shut down; no answer

The answer to the first line is `{"ready": seconds}`. `{"refused": text}` answers arguments that SGLang does not take,
`{"failed": text}` a request that raised. A separate process, because SGLang kills the process that holds its engine
when one of its own fails, and because the harness itself never imports it.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from typing import IO, Any

__all__ = ["serve"]

_IDLE_SECONDS = 30.0


def _main() -> None:
    # No other process may hold this end open: the harness takes its closing for the end of this process.
    answers = os.fdopen(int(sys.argv[1]), "w", encoding="utf-8")
    os.set_inheritable(answers.fileno(), False)
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    engine = _start(requests.get(), answers)
    while True:
        request = requests.get()
        if "end" in request:
            engine.shutdown()
            return
        try:
            results = serve(engine, request)
        except Exception as error:  # noqa: BLE001 - reported to the harness
            _answer(answers, {"failed": f"{type(error).__name__}: {error}"})
        else:
            _answer(answers, {"results": results})


def _read(requests: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Pass requests on; end the whole process group when the harness is gone, however it went."""
    for line in sys.stdin:
        requests.put(json.loads(line))
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


def _start(arguments: dict[str, Any], answers: IO[str]) -> Any:
    begun = time.perf_counter()
    import sglang
    from sglang.srt.plugins import load_plugins
    from sglang.srt.server_args import ServerArgs

    # Before the arguments are made: platforms have a say in their defaults.
    load_plugins()
    try:
        server_args = ServerArgs(**arguments)
    except (TypeError, ValueError) as error:
        _answer(answers, {"refused": str(error)})
        sys.exit(1)
    engine = sglang.Engine(server_args=server_args)
    _answer(answers, {"ready": time.perf_counter() - begun})
    return engine


def serve(engine: Any, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the results of a request, see above."""
    if "flush_cache" in request:
        _flush_cache(engine)
        return []
    results = engine.generate(**request["generate"])
    return [{key: result[key] for key in ("output_ids", "meta_info")} for result in results]


def _flush_cache(engine: Any) -> None:
    """Empty the cache; a request may run on for a moment after its answer, and SGLang then refuses and says so."""
    deadline = time.monotonic() + _IDLE_SECONDS
    while not engine.flush_cache().success:
        if time.monotonic() > deadline:
            raise TimeoutError(f"SGLang is not idle {_IDLE_SECONDS:g} s after its last answer, so its cache stays full")
        time.sleep(0.05)


def _answer(answers: IO[str], answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


# The processes that SGLang spawns import this module again under another name.
if __name__ == "__main__":
    _main()
