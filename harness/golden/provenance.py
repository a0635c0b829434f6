"""Where a golden comes from: file hashes, machine, commit. They explain a difference and never decide one."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from pathlib import Path

from harness.files import hash_file, is_file
from harness.pair.pair import Pair

__all__ = ["commit_of", "machine_info", "pair_hashes"]


def pair_hashes(pair: Pair) -> dict[str, str]:
    """Return the SHA-256 of each file that a pair's measurement depends on, by names without a path of this machine."""
    result = {}
    for name, folder in (("target", pair.target.path), ("draft", pair.draft.path)):
        for file in sorted(folder.iterdir()):
            if file.suffix in (".json", ".safetensors") and is_file(file):
                # Every file that the measurement needs has been read by now: one that cannot be read is not needed.
                with contextlib.suppress(OSError):
                    result[f"{name}/{file.name}"] = hash_file(file)
    result["prompts"] = hash_file(pair.prompts_file)
    return result


def machine_info() -> dict[str, str]:
    """Return properties that tell machines apart, without host or user names."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": str(os.cpu_count()),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def commit_of(folder: Path) -> str | None:
    """Return the commit of a folder's repository, with `+` if files have changed; `None` outside a repository."""
    try:
        command = ["git", "-C", str(folder), "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None if result.returncode == 0 else None
