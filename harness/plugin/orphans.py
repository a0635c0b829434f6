"""At the end of a run over whole folders: goldens beside the pairs that no pair file uses. Told, never a failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.files import shown
from harness.plugin.session import pair_files
from harness.report.session_body import SessionBody

__all__ = ["Orphans", "whole_folders"]

# What a worker of a distributed run tells the controller, which collects nothing itself.
_OUTPUT = "acceptance_pair_files"


class Orphans:
    """Finds unused goldens in the `golden/` of every pair file collected, whether or not its tests ran.

    Args:
        config: The run's configuration.
        body: What `--acceptance-json` will write.
    """

    def __init__(self, config: pytest.Config, body: SessionBody[Any]) -> None:
        self.config = config
        self._body = body
        self._files: list[Path] = []
        self._found: list[Path] = []

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Take note of pair files before any of their tests is deselected."""
        self._files += pair_files([item])

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a worker collected."""
        self._files += [Path(file) for file in getattr(node, "workeroutput", {}).get(_OUTPUT, [])]

    def pytest_sessionfinish(self) -> None:
        """Look for unused goldens, or, as a worker, tell the controller where to look."""
        files = list(dict.fromkeys(self._files))
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput[_OUTPUT] = [str(file) for file in files]
        elif files and whole_folders(self.config):
            self._found = _unused(files)
            self._body.unused_goldens = [str(folder) for folder in self._found]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the unused goldens, and the command that says more."""
        if self._found:
            count = "1 golden" if len(self._found) == 1 else f"{len(self._found)} goldens"
            names = ", ".join(shown(folder) for folder in self._found)
            homes = dict.fromkeys(shown(folder.parent) for folder in self._found)
            commands = "; ".join(f"harness golden orphans {home}" for home in homes)
            terminalreporter.line(f"{count} no pair file uses: {names}; {commands}", yellow=True)


def whole_folders(config: pytest.Config) -> bool:
    """Whether a run took all of the folders it was given: no file or test named, nothing deselected by an option."""
    if any(config.getoption(name, None) for name in ("keyword", "markexpr", "deselect", "lf", "collectonly")):
        return False
    return all((config.invocation_params.dir / argument).is_dir() for argument in config.args)


def _unused(files: list[Path]) -> list[Path]:
    """Return the folders of no pair in every `golden/` that the pair files would write to."""
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
            # The whole project is looked through only where the pairs collected do not account for every folder.
            unknown = unused_folders(home, names)
            known = pair_names(home.parent) if unknown else set()
            found += [folder for folder in unknown if folder.name not in known]
    except InputError:
        # What an unreadable pair file uses is not known; its own tests have failed with this error.
        return []
    return found
