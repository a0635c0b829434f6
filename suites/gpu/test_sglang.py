"""Pairs on the real SGLang, served in every way, against their goldens by the gate's own rules."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.commands.check import CheckResult, check
from harness.commands.prepare import prepare
from harness.engines.base import Progress
from harness.engines.sglang.arguments import server_arguments
from harness.engines.sglang.installed import engine_environment
from harness.pair.builtin import find_pair
from harness.pair.pair import Pair, load_pair
from harness.plugin.gpu import pair_files_to_serve
from harness.report.check import failure
from suites.gpu.ways import BUILT_IN, WAYS, arguments_of, ranks_for
from suites.support.prompts import shortest

_CPU_PLATFORM = "sglang_cpu_platform"


def _require_sglang(device: str) -> None:
    """Skip if SGLang is not installed for the device."""
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


def _built_in(device: str, file: Path | None = None) -> Pair:
    dtype, arguments = BUILT_IN[device]
    return arguments_of(prepare(file or "tiny", engine="sglang", device=device, dtype=dtype), arguments)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Return a function that writes the tiny pair with short continuations, for Triton's interpreter."""

    @functools.cache
    def write() -> Path:
        # Imported here, since a GPU runs the pair as it is and needs nothing of this.
        from suites.sglang.short_pair import record_short

        return record_short(tmp_path_factory.mktemp("short"))

    return write


def _cheapest(pair: Pair, device: str) -> str | None:
    """Return which prompts to run: all on a GPU, the shortest in Triton's interpreter."""
    if device == "cuda":
        return None
    return ",".join(prompt.id for prompt in shortest(pair, 2))


def _served(pair: Pair, prompts: str | None) -> tuple[CheckResult, str]:
    """Check a pair on the engine; return the result and the engine's log."""
    told: list[str] = []
    result = check(pair, prompts=prompts, progress=Progress(begin=lambda what, _total: told.append(what)))
    log = next(match[1] for text in told if (match := re.search(r"log in (.+)$", text)))
    return result, Path(log).read_text(encoding="utf-8", errors="replace")


def _require_good(result: CheckResult, log: str, arguments: Mapping[str, Any]) -> None:
    """Require that the gate passes, and that the engine ran with the arguments it was given."""
    assert result.exit_code == 0, failure(result)
    assert str(result.findings["lossless"].state) == "pass", failure(result)
    assert result.measurement.acceptance.rounds > 0
    if result.measurement.run.dtype == "float32":
        # In float32 rounding changes no token: each prompt has its golden's counts.
        golden = {prompt.id: tuple(prompt.histogram) for prompt in result.golden.document.prompts}
        for record in result.measurement.run.records:
            assert tuple(record.histogram) == golden[record.id], record.id
    # The arguments as SGLang resolved them, since it turns some off by itself.
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
    """Yield every device, file and way of serving; a user's own file runs on CUDA only."""
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
    metafunc.parametrize(("device", "file", "way"), list(_ways([None, *pair_files_to_serve(metafunc.config)])))


@pytest.mark.sglang
@pytest.mark.slow
def test_ways_of_serving_change_nothing(
    device: str, file: Path | None, way: str, short: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _require_sglang(device)
    if file is None:
        pair = _built_in(device, short() if device == "cpu" else None)
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
            # The core of each rank. By itself SGLang divides the NUMA nodes, of which there may be only one.
            monkeypatch.setenv("SGLANG_CPU_OMP_THREADS_BIND", f"0|{(os.cpu_count() or 1) - 1}")
    else:
        arguments = WAYS[device][way]
        if device == "cpu":
            # The harness' own arguments always say so on a CPU.
            assert arguments["disable_cuda_graph"]
            assert arguments["disable_overlap_schedule"]
    result, log = _served(arguments_of(pair, arguments), _cheapest(pair, device))
    _require_good(result, log, arguments)


# Which names `ServerArgs` accepts, and the values it gives them before it looks at the machine.
_TAKEN = """
import json, sys
from sglang.srt.plugins import load_plugins
from sglang.srt.server_args import ServerArgs
load_plugins()
taken = []
for arguments in json.load(sys.stdin):
    made = ServerArgs(**arguments)
    taken.append({name: getattr(made, name) for name in arguments})
sys.stdout.write("TAKEN" + json.dumps(taken))
"""


@pytest.mark.sglang
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_sglang_takes_the_arguments_of_every_way(device: str) -> None:
    """Also those for CUDA, without a GPU: an argument that a release has renamed is found here."""
    _require_sglang("cpu")
    pair = _built_in("cpu").with_engine(device=device)
    ways = [*WAYS[device].values(), {"tp_size": 2, **BUILT_IN[device][1]}]
    asked = [server_arguments(arguments_of(pair, way), running=16, tokens=4096) for way in ways]
    result = subprocess.run(
        [sys.executable, "-c", _TAKEN],
        input=json.dumps(asked),
        env=engine_environment("cpu", ""),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout.partition("TAKEN")[2]) == asked


def test_how_many_gpus_a_pair_is_shared_out_over() -> None:
    """Four query heads and two key heads: neither a third GPU is used, nor a fifth."""
    assert [ranks_for(load_pair(find_pair("tiny")), visible) for visible in (0, 1, 2, 3, 4, 8)] == [1, 1, 2, 2, 4, 4]


def test_any_two_switches_meet_in_all_four_ways() -> None:
    switches = sorted(next(iter(WAYS["cuda"].values())))
    for one, other in itertools.combinations(switches, 2):
        assert len({(way[one], way[other]) for way in WAYS["cuda"].values()}) == 4


def test_pairs_of_a_folder_are_run_in_every_way(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Each on CUDA, with the marker."""
    (tmp_path / "below").mkdir()
    for place in ("one", "below/two"):
        (tmp_path / f"{place}.pair.toml").write_text("")
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", str(Path(__file__))]
    result = subprocess.run(
        [*command, "-m", "gpu", "--acceptance-pairs", str(tmp_path)],
        cwd=pytestconfig.rootpath,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stdout
    for name in ("tiny", "one", "two"):
        for way in (*WAYS["cuda"], "all ranks"):
            assert f"[cuda-{name}-{way}]" in result.stdout
    assert "cpu-" not in result.stdout
