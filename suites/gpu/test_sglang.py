"""Pairs on the real SGLang, in every way of serving them, against their goldens by the gate's own rules."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.check import CheckResult, check, prepare
from harness.engines.base import Progress
from harness.pair.pair import Pair, load_pair, load_prompts
from harness.report.text import failure
from suites.gpu.ways import BUILT_IN, WAYS, arguments_of, pair_files_in, ranks_for

_CPU_PLATFORM = "sglang_cpu_platform"


@pytest.fixture(autouse=True)
def _engine(device: str) -> None:
    """Skip where SGLang is not installed for the device."""
    try:
        importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"SGLang is not installed: {'pip install sglang' if device == 'cuda' else 'tox -e sglang-cpu'}")
    if device == "cpu" and importlib.util.find_spec(_CPU_PLATFORM) is None:
        pytest.skip("SGLang's platform for a CPU is not installed: tox -e sglang-cpu")


@pytest.fixture(scope="module", autouse=True)
def _logs_stay_with_pytest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = tempfile.tempdir
    tempfile.tempdir = str(tmp_path_factory.mktemp("engines"))
    yield
    tempfile.tempdir = before


def _built_in(device: str) -> Pair:
    dtype, arguments = BUILT_IN[device]
    return arguments_of(prepare("tiny", engine="sglang", device=device, dtype=dtype), arguments)


def _cheapest(pair: Pair, device: str) -> str | None:
    """Return which prompts to run: all on a GPU, the two shortest in Triton's interpreter."""
    if device == "cuda":
        return None
    prompts = sorted(load_prompts(pair), key=lambda prompt: (len(prompt.ids), prompt.id))
    return ",".join(prompt.id for prompt in prompts[:2])


def _served(pair: Pair, prompts: str | None) -> tuple[CheckResult, str]:
    """Check a pair on the engine; return the result and the engine's log."""
    told: list[str] = []
    result = check(pair, prompts=prompts, progress=Progress(begin=lambda what, _total: told.append(what)))
    log = next(match[1] for text in told if (match := re.search(r"log in (.+)$", text)))
    return result, Path(log).read_text(encoding="utf-8", errors="replace")


def _require_good(result: CheckResult, log: str, arguments: Mapping[str, Any]) -> None:
    """Require the gate's yes, and that the engine was served as it was asked to be."""
    assert result.exit_code == 0, failure(result)
    assert str(result.findings["lossless"].state) == "pass", failure(result)
    assert result.measurement.acceptance.rounds > 0
    # The arguments as SGLang has resolved them: it turns some off by itself.
    (resolved,) = re.findall(r"server_args=(\{.*\})", log)[:1]
    for name, value in arguments.items():
        found = re.search(rf"'{name}': ([^,]+)", resolved)
        assert found is not None, name
        assert found[1] == repr(value), name
    if "disable_cuda_graph" in arguments:
        backend = re.search(r"'cuda_graph_config': \{'decode': \{'backend': '(\w+)'", resolved)
        assert backend is not None
        assert (backend[1] == "disabled") is arguments["disable_cuda_graph"]


def _ways(files: list[Path | None]) -> Iterator[Any]:
    """Yield every device, file and way of serving; a file of the user's runs on CUDA only."""
    gpu = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]
    for device, ways in WAYS.items():
        for file in files if device == "cuda" else [None]:
            name = "tiny" if file is None else file.name.removesuffix(".pair.toml")
            for way in (*ways, "all ranks"):
                marks = gpu if device == "cuda" else []
                yield pytest.param(device, file, way, id=f"{device}-{name}-{way}", marks=marks)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "way" not in metafunc.fixturenames:
        return
    folder = metafunc.config.getoption("--acceptance-pairs")
    files: list[Path | None] = [None]
    if folder is not None:
        try:
            files += pair_files_in(metafunc.config.invocation_params.dir / folder)
        except ValueError as error:
            raise pytest.UsageError(f"--acceptance-pairs: {error}") from None
    metafunc.parametrize(("device", "file", "way"), list(_ways(files)))


@pytest.mark.sglang
@pytest.mark.slow
def test_ways_of_serving_change_nothing(
    device: str, file: Path | None, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if file is None:
        pair = _built_in(device)
    else:
        named = load_pair(file).settings.engine.device
        pair = prepare(file, engine="sglang", device=named if named.startswith("cuda") else device)
    if way == "all ranks":
        visible = torch.cuda.device_count() if device == "cuda" else 2
        ranks = ranks_for(pair, visible)
        if ranks < 2:
            pytest.skip(f"{visible} visible GPU, or heads that cannot be shared out: no tensor parallelism")
        arguments: Mapping[str, Any] = {"tp_size": ranks}
        if device == "cpu":
            # Which core each rank has; SGLang would divide the memory's nodes, of which there may be one only.
            monkeypatch.setenv("SGLANG_CPU_OMP_THREADS_BIND", f"0|{(os.cpu_count() or 1) - 1}")
    else:
        arguments = WAYS[device][way]
        if device == "cpu":
            # Always so there, by the harness' own arguments.
            assert arguments["disable_cuda_graph"]
            assert arguments["disable_overlap_schedule"]
    result, log = _served(arguments_of(pair, arguments), _cheapest(pair, device))
    _require_good(result, log, arguments)
