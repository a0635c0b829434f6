"""What the plugin does with tests that need a GPU, where there is one, none, or a broken one."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

import pytest
import torch

from harness.plugin import gpu

ARGUMENTS = ("-p", "no:cacheprovider")
TESTS = """
import pytest

@pytest.mark.gpu
def test_one(): pass

@pytest.mark.gpu
def test_two(): pass

def test_on_a_cpu(): pass
"""


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for /dev, without a device."""
    folder = tmp_path / "dev"
    folder.mkdir()
    monkeypatch.setattr(gpu, "_DEVICES", folder)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return folder


@pytest.fixture
def no_gpu(devices: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a GPU, whatever this one has."""
    assert not list(devices.iterdir())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("no_gpu")
def test_without_a_device_they_are_skipped_and_counted(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess(*ARGUMENTS, "-rs")
    result.assert_outcomes(passed=1, skipped=2)
    assert result.ret == 0
    reason = f"no CUDA device (torch {torch.__version__})"
    result.stdout.fnmatch_lines(
        ["*= not checked on this machine =*", f"2 tests marked gpu: {reason}", f"SKIPPED * {reason}"]
    )


@pytest.mark.usefixtures("no_gpu")
def test_chosen_by_the_marker_alone_they_are_no_failure(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess(*ARGUMENTS, "-m", "gpu")
    result.assert_outcomes(skipped=2, deselected=1)
    assert result.ret == 0


@pytest.mark.usefixtures("no_gpu")
def test_a_required_gpu_that_is_not_there_is_a_failure(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    out = pytester.path / "results.json"
    result = pytester.runpytest_inprocess(
        *ARGUMENTS, "-m", "gpu", "--acceptance-require-gpu", "--acceptance-json", out, "--junitxml", "junit.xml"
    )
    result.assert_outcomes(errors=2, deselected=1)
    assert int(result.ret) == 1
    reason = f"no CUDA device (torch {torch.__version__})"
    result.stdout.fnmatch_lines(
        ["*= not checked on this machine =*", f"2 tests marked gpu failed by --acceptance-require-gpu: {reason}"]
    )
    assert "Traceback" not in result.stdout.str()
    assert json.loads(out.read_text())["not_checked"] == [{"marker": "gpu", "tests": 2, "reason": reason}]
    assert f"--acceptance-require-gpu: {reason}" in (pytester.path / "junit.xml").read_text()


def test_with_a_gpu_they_run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "cuda_problem", lambda: None)
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess(*ARGUMENTS, "--acceptance-require-gpu")
    result.assert_outcomes(passed=3)
    result.stdout.no_fnmatch_line("*not checked*")


def test_what_else_a_machine_lacks_is_counted_too(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder called as a marker marks nothing, and what is expected to fail is checked."""
    monkeypatch.setattr(gpu, "cuda_problem", lambda: None)
    (pytester.path / "gpu").mkdir()
    (pytester.path / "gpu" / "test_it.py").write_text(
        """
import pytest

@pytest.mark.gpu
def test_two_gpus(): pytest.skip("one GPU, and this needs two")

@pytest.mark.sglang
@pytest.mark.skip(reason="SGLang is not installed")
def test_engine(): pass

@pytest.mark.gpu
@pytest.mark.xfail
def test_known(): assert False

def test_other(): pytest.skip("something else")
"""
    )
    result = pytester.runpytest_inprocess(*ARGUMENTS)
    result.assert_outcomes(skipped=3, xfailed=1)
    text = result.stdout.str()
    assert "1 test marked gpu: one GPU, and this needs two" in text
    assert "1 test marked sglang: SGLang is not installed" in text
    assert text.count(" marked ") == 2


@pytest.mark.usefixtures("no_gpu")
def test_workers_tell_the_controller(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    # Workers are processes of their own: there the real machine is looked at, with every GPU hidden.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess(*ARGUMENTS, "-n", "2")
    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines(["*= not checked on this machine =*", "2 tests marked gpu: *"])


def _pair(pytester: pytest.Pytester, engine: str) -> None:
    (pytester.path / "some.pair.toml").write_text(
        f'name = "some"\ntarget = "t"\ndraft = "d"\nprompts = "p"\n[engine]\n{engine}\n'
    )


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("engine", "skipped"),
    [
        ('device = "cuda"', 7),
        ('device = "cuda:1"\nname = "sglang"', 7),
        ('device = "cpu"', 0),
        ('device = "cuda"\nname = "server"', 0),
        ("device = 3", 0),
    ],
)
def test_a_pair_on_cuda_carries_the_marker(pytester: pytest.Pytester, engine: str, skipped: int) -> None:
    """The others fail here, since nothing of the pair is there."""
    _pair(pytester, engine)
    result = pytester.runpytest_inprocess(*ARGUMENTS)
    result.assert_outcomes(skipped=skipped, failed=7 - skipped)
    chosen = pytester.runpytest_inprocess(*ARGUMENTS, "-m", "gpu")
    chosen.assert_outcomes(skipped=skipped, deselected=7 - skipped)


def test_a_pair_on_a_running_server_needs_no_gpu_here(pytester: pytest.Pytester) -> None:
    _pair(pytester, 'device = "cuda"')
    result = pytester.runpytest_inprocess(*ARGUMENTS, "--acceptance-endpoint", "http://127.0.0.1:9")
    result.assert_outcomes(failed=7)


def test_no_device(devices: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (devices / "nvidiactl").touch()
    assert gpu.cuda_problem() == f"no CUDA device (torch {torch.__version__})"


@pytest.mark.parametrize(
    ("built", "hidden", "told", "expected"),
    [
        (None, None, None, "is built without CUDA: install a build with CUDA"),
        ("13.0", "", None, "does not see them: CUDA_VISIBLE_DEVICES is ''"),
        ("13.0", "-1", None, "does not see them: CUDA_VISIBLE_DEVICES is '-1'"),
        ("13.0", "0", "the NVIDIA driver on your system is too old", "cannot use them: the NVIDIA driver on your"),
        ("13.0", None, None, "cannot use them: torch does not say why"),
    ],
)
def test_devices_that_torch_cannot_use(
    devices: Path,
    monkeypatch: pytest.MonkeyPatch,
    built: str | None,
    hidden: str | None,
    told: str | None,
    expected: str,
) -> None:
    def unavailable() -> bool:
        if told:
            warnings.warn(told, UserWarning, stacklevel=1)
        return False

    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (devices / name).touch()
    monkeypatch.setattr(torch.cuda, "is_available", unavailable)
    monkeypatch.setattr(torch.version, "cuda", built)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    problem = gpu.cuda_problem()
    assert problem is not None
    assert f"this machine has {devices / 'nvidia0'}, {devices / 'nvidia1'}, and torch {torch.__version__}" in problem
    assert expected in problem


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA works here")
def test_a_gpu_that_is_seen_and_does_not_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    """This build of torch sees no GPU; told that there is one, it fails as on a broken one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    problem = gpu.cuda_problem()
    assert problem is not None
    assert problem.startswith("CUDA does not work: ")
    assert os.linesep not in problem


@pytest.mark.parametrize("name", ["empty", "nowhere", "file"])
def test_a_folder_of_pairs_that_is_none_is_told_before_anything_runs(pytester: pytest.Pytester, name: str) -> None:
    (pytester.path / "empty").mkdir()
    (pytester.path / "file").write_text("")
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess(*ARGUMENTS, "--acceptance-pairs", name)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --acceptance-pairs: *{name} *; name a folder of pair files"])
