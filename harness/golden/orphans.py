"""Goldens that nothing uses. They are findings; nobody but their owner knows whether they may go."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from harness.errors import InputError
from harness.files import is_file, is_folder
from harness.golden.find import nearest_homes
from harness.golden.store import load_golden, unused_tensors
from harness.pair.pairfile import read_pair_file

__all__ = ["Orphan", "OrphanReport", "find_home", "find_orphans", "pair_names", "unused_folders"]

_NO_SOURCES = {"build", "node_modules"}
# What makes a folder an environment, whatever it is called: of venv or virtualenv, of conda.
_ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta/history")


@dataclass(frozen=True)
class Orphan:
    """Something among the goldens that is of no use as it stands.

    Attributes:
        kind: `folder`, `tensors` or `unreadable`.
        path: Where it is.
        problem: One sentence for a person.
    """

    kind: str
    path: Path
    problem: str


@dataclass(frozen=True)
class OrphanReport:
    """What was found in a `golden/`.

    Attributes:
        home: The folder of goldens.
        root: The project, below which the pair files are.
        pairs: The names of the pairs found.
        orphans: What none of them uses.
    """

    home: Path
    root: Path
    pairs: tuple[str, ...]
    orphans: tuple[Orphan, ...]


def find_home(folder: str | None) -> Path:
    """Return the `golden/` that is meant: the folder itself, the one in it, or the nearest upward from here.

    Raises:
        InputError: There is no such folder.
    """
    if folder is None:
        home = next(nearest_homes(Path.cwd()), None)
        if home is None:
            raise InputError(
                "there is no golden/ here or in any folder above", file=Path.cwd(), next_step="name the folder"
            )
        return home
    path = Path(folder)
    if not is_folder(path):
        raise InputError("there is no such folder", file=path, expected="a golden/ folder, or the project it lies in")
    path = path.resolve()
    return path / "golden" if path.name != "golden" and is_folder(path / "golden") else path


def find_orphans(home: Path) -> OrphanReport:
    """Find folders of no pair, tensors that no golden names and goldens that cannot be read.

    Raises:
        InputError: A folder or a pair file of the project cannot be read, so that what it uses is not known.
    """
    pairs = pair_names(home.parent)
    unused = unused_folders(home, pairs)
    found = [Orphan("folder", path, f"no pair file below {home.parent} has this name") for path in unused]
    used = [folder for folder in _folders(home) if folder not in unused]
    for folder in used:
        found += _unreadable(folder)
    for folder in (home, *used):
        found += [Orphan("tensors", path, "no golden names these tensors") for path in unused_tensors(folder)]
    return OrphanReport(home, home.parent, tuple(sorted(pairs)), tuple(sorted(found, key=lambda orphan: orphan.path)))


def unused_folders(home: Path, pairs: Iterable[str]) -> list[Path]:
    """Return the folders of a `golden/` that bear the name of none of the pairs."""
    names = set(pairs)
    return [folder for folder in _folders(home) if folder.name not in names]


def pair_names(root: Path) -> set[str]:
    """Return the names of the pairs whose files lie below a folder, leaving out what is no source of the project.

    Raises:
        InputError: A folder or a pair file cannot be read.
    """
    return {read_pair_file(file).name for file in _pair_files(root)}


def _pair_files(root: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(root, onerror=_unlistable):
        folders[:] = sorted(name for name in folders if not _left_out(Path(place, name)))
        yield from (Path(place, name) for name in sorted(files) if name.endswith(".pair.toml"))


def _left_out(folder: Path) -> bool:
    if folder.name.startswith(".") or folder.name in _NO_SOURCES:
        return True
    return any(is_file(folder / mark) for mark in _ENVIRONMENT_MARKS)


def _folders(home: Path) -> list[Path]:
    try:
        return sorted(path for path in home.iterdir() if is_folder(path) and not path.name.startswith("."))
    except OSError as error:
        _unlistable(error)


def _unreadable(folder: Path) -> Iterator[Orphan]:
    for file in sorted(folder.glob("*.json")):
        try:
            load_golden(file)
        except InputError as error:
            yield Orphan("unreadable", file, f"{error.key}: {error.problem}" if error.key else error.problem)


def _unlistable(error: OSError) -> NoReturn:
    raise InputError("the folder cannot be read", file=error.filename, found=error.strerror) from None
