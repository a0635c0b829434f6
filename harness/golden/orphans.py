"""Goldens that no pair file uses. They are reported and never removed: only their owner knows whether to."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from harness.errors import InputError
from harness.files import is_file, is_folder
from harness.golden.find import nearest_homes
from harness.golden.store import golden_files, load_golden, unused_tensors
from harness.pair.pairfile import read_pair_file

__all__ = ["Orphan", "OrphanReport", "find_home", "find_orphans", "pair_names", "unused_folders"]

_NO_SOURCES = {"build", "node_modules"}
# Present in every environment made by venv or virtualenv, and by conda, whatever its folder is called.
_ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta/history")


@dataclass(frozen=True)
class Orphan:
    """A folder or file among the goldens that nothing can use.

    Attributes:
        kind: `folder`, `tensors` or `unreadable`.
        path: The folder or file.
        problem: One sentence that says why nothing uses it.
    """

    kind: str
    path: Path
    problem: str


@dataclass(frozen=True)
class OrphanReport:
    """The unused goldens of a `golden/`.

    Attributes:
        home: The `golden/` itself.
        root: The project, below which pair files were looked for.
        pairs: The names of the pairs found there.
        orphans: Sorted by path.
    """

    home: Path
    root: Path
    pairs: tuple[str, ...]
    orphans: tuple[Orphan, ...]


def find_home(folder: str | None) -> Path:
    """Return the `golden/` that a command line means.

    Args:
        folder: A `golden/`, or a folder that contains one; if `None`, the nearest `golden/` upward from here is meant.

    Raises:
        InputError: There is no such folder.
    """
    if folder is None:
        home = next(nearest_homes(Path.cwd()), None)
        if home is None:
            raise InputError(
                "there is no golden/ in this folder or above it", file=Path.cwd(), next_step="name the folder"
            )
        return home
    path = Path(folder)
    if not is_folder(path):
        raise InputError("the folder does not exist", file=path, expected="a golden/ folder, or a project that has one")
    path = path.resolve()
    return path / "golden" if path.name != "golden" and is_folder(path / "golden") else path


def find_orphans(home: Path) -> OrphanReport:
    """Find folders that belong to no pair, tensors that no golden references, and goldens that cannot be read.

    Raises:
        InputError: A folder or a pair file of the project cannot be read, so that it is not known what it uses.
    """
    pairs = pair_names(home.parent)
    unused = unused_folders(home, pairs)
    found = [Orphan("folder", path, f"no pair file below {home.parent} has this name") for path in unused]
    used = [folder for folder in _folders(home) if folder not in unused]
    for folder in used:
        found += _unreadable(folder)
    for folder in (home, *used):
        found += [Orphan("tensors", path, "no golden references these tensors") for path in unused_tensors(folder)]
    return OrphanReport(home, home.parent, tuple(sorted(pairs)), tuple(sorted(found, key=lambda orphan: orphan.path)))


def unused_folders(home: Path, pairs: Iterable[str]) -> list[Path]:
    """Return the folders of a `golden/` that do not have the name of any of the pairs."""
    names = set(pairs)
    return [folder for folder in _folders(home) if folder.name not in names]


def pair_names(root: Path) -> set[str]:
    """Return the names of the pairs whose files are below a folder, environments and build output left out.

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
    for file in golden_files(folder):
        try:
            load_golden(file)
        except InputError as error:
            yield Orphan("unreadable", file, f"{error.key}: {error.problem}" if error.key else error.problem)


def _unlistable(error: OSError) -> NoReturn:
    raise InputError("the folder cannot be read", file=error.filename, found=error.strerror) from None
