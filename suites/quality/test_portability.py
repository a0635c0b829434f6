"""A golden that holds only on the machine and in the process that recorded it is worthless."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from suites.support.builtin_pairs import ROOT

pytestmark = pytest.mark.slow


def _check(cwd: Path, *arguments: str, **environment: str) -> tuple[int, str, dict[str, Any]]:
    variables = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "PYTHONPATH")}
    result = subprocess.run(
        [sys.executable, "-m", "harness", "check", "tiny", "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=cwd,
        env=variables | environment,
    )
    return result.returncode, result.stdout, json.loads(result.stdout)


def test_other_kernels_and_threads_still_pass() -> None:
    for environment in (
        {"ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "1"},
        {"ATEN_CPU_CAPABILITY": "avx2", "OMP_NUM_THREADS": "1"},
        {"OMP_NUM_THREADS": "2"},
    ):
        status, _, body = _check(ROOT, **environment)
        assert (status, body["verdict"]) == (0, "pass"), (environment, body["detectors"])


def test_two_runs_print_the_same_bytes_but_for_the_time() -> None:
    outputs = []
    for _ in range(2):
        _, text, body = _check(ROOT, "--prompts", "24")
        outputs.append(text.replace(f'"seconds": {body["seconds"]}', '"seconds": …'))
    assert outputs[0] == outputs[1]


def test_the_wheel_carries_the_tiny_pair(tmp_path: Path) -> None:
    """Built as a wheel and used from an empty folder, `harness check tiny` measures the wheel's own copy."""
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            str(ROOT),
            "--no-deps",
            "--no-build-isolation",
            "-w",
            str(tmp_path),
            "-q",
        ],
        check=True,
        timeout=300,
    )
    (wheel,) = tmp_path.glob("*.whl")
    site, empty = tmp_path / "site", tmp_path / "empty"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    empty.mkdir()
    status, _, body = _check(empty, PYTHONPATH=str(site))
    assert (status, body["verdict"]) == (0, "pass")
    assert Path(body["golden"]).is_relative_to(site)
    for name in ("chat-70.jsonl", "chat-80.jsonl"):
        carried = site / "harness/builtin/fixtures/prompts" / name
        assert carried.read_bytes() == (ROOT / "fixtures/prompts" / name).read_bytes()
    schemas = sorted((ROOT / "harness/schemas").iterdir())
    assert schemas
    for file in schemas:
        assert (site / "harness/schemas" / file.name).read_bytes() == file.read_bytes()
