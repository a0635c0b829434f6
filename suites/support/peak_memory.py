"""The memory that recording a pair takes beside what was loaded before: a process of its own.

`python -m suites.support.peak_memory PAIR` measures what a golden of the pair is made of and prints, as JSON, the peak
of the process's resident memory, above what it had before the pair was loaded, in bytes.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import threading
from pathlib import Path

from harness.commands.prepare import prepare
from harness.engines.base import Progress
from harness.engines.reference.engine import ReferenceEngine
from harness.pair.pair import load_prompts
from suites.support.random_pair import write_pair
from suites.support.recording import Anything

_INTERVAL = 0.002


def resident() -> int:
    """Return the process's resident memory in bytes, of pages of files too."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def _record(file: Path) -> None:
    pair = prepare(file)
    ReferenceEngine("replay").record(pair, load_prompts(pair), Anything(), Progress())


def _placed(file: Path) -> Path:
    file.write_text(f'{file.read_text()}\n[engine]\ndevice_map = "auto"\n')
    return file


def main(file: Path) -> None:
    """Record and print."""
    with tempfile.TemporaryDirectory() as folder:
        # Libraries would otherwise be loaded along with the model.
        _record(_placed(write_pair(Path(folder))))
    gc.collect()
    before = resident()
    peak, done = [before], threading.Event()

    def watch() -> None:
        while not done.wait(_INTERVAL):
            peak[0] = max(peak[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        _record(file)
    finally:
        done.set()
        watcher.join()
    print(json.dumps({"above": peak[0] - before}))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
