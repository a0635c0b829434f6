"""A pair file as a pytest collector, and each detector as one of its tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.detectors import DETECTORS, State
from harness.detectors.gate import is_failure
from harness.errors import HarnessError, InputError, one_line
from harness.golden.same_name import require_one_pair
from harness.pair.pairfile import PairFile, read_pair_file
from harness.plugin.session import checked
from harness.plugin.update import find_updates
from harness.report.check import failure
from harness.report.figures import percent

__all__ = ["DetectorItem", "PairCollector", "PairFailedError"]


class PairFailedError(Exception):
    """Raised by the test of a detector whose finding is a failure; the message is the whole report."""


class PairCollector(pytest.File):
    """A `*.pair.toml` file."""

    def repr_failure(  # type: ignore[override]
        self, excinfo: pytest.ExceptionInfo[BaseException]
    ) -> Any:
        """Show the message of bad input without a traceback."""
        if isinstance(excinfo.value, HarnessError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def collect(self) -> Iterator[pytest.Item]:
        """Yield one test for each detector, marked gpu if the pair runs on CUDA."""
        _require_distinct(self.config, self.path)
        endpoint = self.config.getoption("--acceptance-endpoint")
        on_cuda = endpoint is None and _on_cuda(self.path, self.config.getoption("--acceptance-engine"))
        for name in DETECTORS:
            item = DetectorItem.from_parent(self, name=name)
            # Under xdist's loadgroup, the tests of a pair go to one worker and share one measurement. Without xdist
            # nothing registers the marker, and --strict-markers would refuse it.
            if self.config.pluginmanager.hasplugin("xdist"):
                item.add_marker(pytest.mark.xdist_group(str(self.path)))
            if on_cuda:
                item.add_marker(pytest.mark.gpu)
            yield item


_COLLECTED: pytest.StashKey[dict[Path, PairFile]] = pytest.StashKey()


def _require_distinct(config: pytest.Config, file: Path) -> None:
    """Refuse a second pair file that shares the name of one collected before, and is not the same pair.

    Raises:
        InputError: The two would write the same golden, or disagree on what it is about.
    """
    seen = config.stash.setdefault(_COLLECTED, {})
    try:
        settings = read_pair_file(file)
    except InputError:
        # The pair's own tests report what is wrong with its file.
        return
    for other, theirs in seen.items():
        require_one_pair((file, settings), (other, theirs))
    seen[file] = settings


def _on_cuda(file: Path, engine: str | None) -> bool:
    """Return whether a pair needs a GPU of this machine; a running server has its own."""
    try:
        settings = read_pair_file(file).engine
    except InputError:
        # The pair's own tests report what is wrong with its file.
        return False
    name = (engine or settings.name).partition(":")[0]
    return name != "server" and settings.device.partition(":")[0] == "cuda"


class DetectorItem(pytest.Item):
    """The test of one detector on one pair."""

    def runtest(self) -> None:
        """Measure the pair, unless this session already has, and fail if this detector's finding is a failure.

        With `--acceptance-update` the golden is updated first. If it was recorded, the test is skipped: a comparison of
        the pair with a record of itself would always pass.
        """
        updates = find_updates(self.config)
        if updates is not None:
            done = updates.update(self.path)
            self.user_properties.append(("acceptance_golden", done.done))
            if done.done == "recorded":
                pytest.skip(f"nothing to compare with: the golden has just been recorded, {done.golden}")
        result = checked(self.config, self.path)
        finding = result.findings[self.name]
        acceptance = result.measurement.acceptance
        error = acceptance.errors.get("rate")
        self.user_properties += [
            ("acceptance_pair", result.pair.name),
            ("acceptance_file", str(self.path)),
            ("acceptance_verdict", str(finding.state)),
            ("acceptance_rate", percent(acceptance.rate)),
            ("acceptance_standard_error", percent(error)),
        ]
        if finding.state is State.NOT_APPLICABLE:
            pytest.skip(f"not applicable: {one_line(finding.message)}")
        if is_failure(finding.state, result.exit_code):
            raise PairFailedError(f"{self.name}: {one_line(finding.message)}\n\n{failure(result)}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show the message of a failed detector or of bad input without a traceback."""
        if isinstance(excinfo.value, PairFailedError | HarnessError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Name the test by file and detector."""
        # pytest requires a line number; 0 is a placeholder.
        return self.path, 0, self.name
