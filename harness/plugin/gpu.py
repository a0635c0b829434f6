"""Tests that need a GPU: skipped with the reason if it is missing, and counted at the end of the run."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.errors import one_line
from harness.report.bodies.session import SessionBody, UncheckedBody

__all__ = ["Unchecked", "cuda_problem", "pair_files_to_serve"]

# Linux lists NVIDIA's devices here even if torch cannot use them.
_DEVICES = Path("/dev")
_REQUIRE = "--acceptance-require-gpu"
_PAIRS = "--acceptance-pairs"


def pair_files_to_serve(config: pytest.Config) -> list[Path]:
    """Return the pair files in and below the folder that `--acceptance-pairs` names; empty without that option.

    Raises:
        pytest.UsageError: The folder does not exist or does not contain a pair file.
    """
    named = config.getoption(_PAIRS)
    if named is None:
        return []
    folder = config.invocation_params.dir / str(named)
    files = sorted(folder.rglob("*.pair.toml"))
    if not files:
        problem = "does not contain a *.pair.toml" if folder.is_dir() else "is not a folder"
        raise pytest.UsageError(f"{_PAIRS}: {folder} {problem}; name a folder of pair files")
    return files


def cuda_problem() -> str | None:
    """Try to compute on CUDA with torch, and return why that fails; `None` if it works."""
    try:
        import torch
    except ImportError as error:
        return f"torch cannot be imported: {one_line(str(error))}"
    with warnings.catch_warnings(record=True) as caught:
        # Torch reports a broken driver only as a warning.
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
    if available:
        try:
            # Reading back shows whether kernels for this GPU are missing or its memory is full.
            works = torch.ones(1, device="cuda").add(1).item() == 2
        except Exception as error:  # noqa: BLE001 - a broken driver or GPU fails in its own way
            return f"CUDA does not work: {type(error).__name__}: {one_line(str(error), 240)}"
        return None if works else "CUDA does not work: it computes 1 + 1 wrongly"
    # Devices first: without one it does not matter how torch was built.
    devices = sorted(str(file) for file in _DEVICES.glob("nvidia[0-9]*"))
    if not devices:
        return f"no CUDA device (torch {torch.__version__})"
    present = f"this machine has {', '.join(devices)}, and torch {torch.__version__}"
    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        return f"{present} is built without CUDA: install a build with CUDA"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and hidden.strip() in ("", "-1", "NoDevFiles"):
        return f"{present} does not see them: CUDA_VISIBLE_DEVICES is {hidden!r}"
    why = one_line(str(caught[0].message), 240) if caught else "torch does not say why"
    return f"{present} cannot use them: {why}"


class Unchecked:
    """Skips tests whose marker asks for hardware or software that is missing, and counts them.

    Args:
        config: Has the options of the run.
        body: The object that `--acceptance-json` writes, to which the counts are added.
    """

    def __init__(self, config: pytest.Config, body: SessionBody[Any]) -> None:
        self.config = config
        self._body = body
        self._required = bool(config.getoption(_REQUIRE))
        self._problem: str | None = None
        self._looked = False
        self._counts: Counter[tuple[str, str]] = Counter()
        self._failed: Counter[str] = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a test that needs CUDA if CUDA does not work, or fail it with `--acceptance-require-gpu`."""
        if item.get_closest_marker("gpu") is None:
            return
        if not self._looked:
            self._problem, self._looked = cuda_problem(), True
        if self._problem is None:
            return
        if self._required:
            item.user_properties.append(("acceptance_gpu", self._problem))
            pytest.fail(f"{_REQUIRE}: {self._problem}", pytrace=False)
        pytest.skip(self._problem)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        """Attach its marker to a skipped test's report: in the keywords a folder of that name looks the same."""
        outcome = yield
        report = outcome.get_result()  # type: ignore[attr-defined]
        marker = next((name for name in ("gpu", "sglang") if item.get_closest_marker(name)), None)
        if marker is not None and report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            report.acceptance_unchecked = [marker, reason.removeprefix("Skipped: ")]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count tests that were not run, in whichever process: reports of all workers arrive here."""
        marker, reason = getattr(report, "acceptance_unchecked", (None, None))
        if marker is not None and reason is not None:
            self._counts[marker, reason] += 1
        if report.when == "setup" and report.failed:
            self._failed.update(str(value) for name, value in report.user_properties if name == "acceptance_gpu")

    def pytest_sessionfinish(self) -> None:
        """Add the counts to the object that `--acceptance-json` writes."""
        skipped = [UncheckedBody(marker, count, reason) for (marker, reason), count in self._counts.items()]
        failed = [UncheckedBody("gpu", count, reason) for reason, count in self._failed.items()]
        self._body.not_checked = skipped + failed

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print how many tests were not run, and why."""
        if not self._counts and not self._failed:
            return
        terminalreporter.section("not checked on this machine")
        for (marker, reason), count in self._counts.items():
            terminalreporter.line(f"{_tests(count)} marked {marker}: {reason}")
        for reason, count in self._failed.items():
            terminalreporter.line(f"{_tests(count)} marked gpu failed by {_REQUIRE}: {reason}", red=True)


def _tests(count: int) -> str:
    return "1 test" if count == 1 else f"{count} tests"
