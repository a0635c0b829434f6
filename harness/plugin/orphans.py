"""Goldens that no pair file uses, reported at the end of a run over whole folders. They never fail the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.files import shown
from harness.plugin.session import pair_files
from harness.report.bodies.session import SessionBody

__all__ = ["Orphans", "whole_folders"]

# Key under which a worker of a distributed run sends its pair files to the controller, which does not collect tests.
_OUTPUT = "acceptance_pair_files"


class Orphans:
    """Finds unused goldens in the `golden/` of every pair file collected, whether or not its tests ran.

    Args:
        config: Has the options of the run.
        body: The object that `--acceptance-json` writes, to which the unused goldens are added.
    """

    def __init__(self, config: pytest.Config, body: SessionBody[Any]) -> None:
        self.config = config
        self._body = body
        self._files: list[Path] = []
        self._found: list[Path] = []

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Remember a test's pair file, also if the test is deselected later."""
        self._files += pair_files([item])

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over the pair files that a worker has collected."""
        self._files += [Path(file) for file in getattr(node, "workeroutput", {}).get(_OUTPUT, [])]

    def pytest_sessionfinish(self) -> None:
        """Look for unused goldens; a worker sends its pair files to the controller instead."""
        files = list(dict.fromkeys(self._files))
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput[_OUTPUT] = [str(file) for file in files]
        elif files and whole_folders(self.config):
            self._found = _unused(files)
            self._body.unused_goldens = [str(folder) for folder in self._found]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the unused goldens and the command that tells more about them."""
        if self._found:
            count = "1 golden" if len(self._found) == 1 else f"{len(self._found)} goldens"
            names = ", ".join(shown(folder) for folder in self._found)
            homes = dict.fromkeys(shown(folder.parent) for folder in self._found)
            commands = "; ".join(f"harness golden orphans {home}" for home in homes)
            terminalreporter.line(f"{count} that no pair file uses: {names}; see {commands}", yellow=True)


def whole_folders(config: pytest.Config) -> bool:
    """Return whether a run covers its folders completely: no file or test named, and no option that deselects tests."""
    if any(config.getoption(name, None) for name in ("keyword", "markexpr", "deselect", "lf", "collectonly")):
        return False
    return all((config.invocation_params.dir / argument).is_dir() for argument in config.args)


def _unused(files: list[Path]) -> list[Path]:
    """Return the folders that belong to no pair, in every `golden/` that the goldens of these pairs are written to."""
    from harness.errors import InputError
    from harness.golden.find import golden_home
    from harness.golden.orphans import pair_names, unused_folders
    from harness.pair.pairfile import read_pair_file

    try:
        settings = {file: read_pair_file(file) for file in files}
        homes = {golden_home(file, entry).resolve() for file, entry in settings.items()}
        names = {entry.name for entry in settings.values()}
        found: list[Path] = []
        for home in sorted(home for home in homes if home.is_dir()):
            # Searching the whole project takes time: only if the collected pairs do not account for every folder.
            unknown = unused_folders(home, names)
            known = pair_names(home.parent) if unknown else set()
            found += [folder for folder in unknown if folder.name not in known]
    except InputError:
        # It is not known which golden an unreadable pair file uses, and its own tests have failed with this error.
        return []
    return found
