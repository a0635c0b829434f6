"""Where the goldens of a pair are stored, and which one a run is compared with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from harness.errors import InputError
from harness.files import is_folder
from harness.golden.golden_class import DEFAULT, GoldenClass
from harness.pair.builtin import builtin_root
from harness.pair.locate import relative_path
from harness.pair.pair import Pair
from harness.pair.pairfile import PairFile

__all__ = [
    "find_golden",
    "golden_folder",
    "golden_home",
    "golden_in_use",
    "nearest_homes",
    "recording_file",
]


def nearest_homes(start: Path) -> Iterator[Path]:
    """Yield each `golden/` upward from a folder, the nearest first."""
    start = start.resolve()
    for folder in (start, *start.parents):
        if is_folder(folder / "golden"):
            yield folder / "golden"


def golden_home(file: Path, settings: PairFile) -> Path:
    """Return the folder in which a pair's goldens are written, under its name.

    It is the pair file's `golden` key, else the nearest `golden/` upward from the pair file, else one next to it.
    """
    if settings.golden is not None:
        return relative_path(file, "golden", settings.golden)
    folder = file.resolve().parent
    return next(nearest_homes(folder), folder / "golden")


def golden_folder(pair: Pair) -> Path | None:
    """Return the folder whose goldens a pair is compared with, `None` if no folder has any.

    It is the pair file's `golden` key, else the nearest `golden/` upward from the pair file that has goldens of the
    pair, else the built-in one.
    """
    if pair.settings.golden is not None:
        return golden_home(pair.file, pair.settings) / pair.name
    for home in (*nearest_homes(pair.file.resolve().parent), builtin_root() / "golden"):
        if is_folder(home / pair.name):
            return home / pair.name
    return None


def recording_file(pair: Pair) -> Path:
    """Return the file in which a golden of the pair's own class is recorded, whether or not it exists yet."""
    return golden_home(pair.file, pair.settings) / pair.name / GoldenClass.of_pair(pair).file


def golden_in_use(pair: Pair) -> Path:
    """Return the golden that a check of the pair compares with: of its own class, else of the default class.

    Raises:
        InputError: There is neither.
    """
    own = GoldenClass.of_pair(pair)
    return find_golden(pair, own, *(() if own == DEFAULT else (DEFAULT,)))


def find_golden(pair: Pair, *classes: GoldenClass) -> Path:
    """Return the pair's golden of the first class that has one.

    Raises:
        InputError: None of the classes has one.
    """
    folder = golden_folder(pair)
    names = [golden_class.file for golden_class in classes]
    others: list[str] = []
    if folder is not None:
        for name in names:
            # A broken link counts: its reader says what is wrong. Passing over it would compare with another class.
            if os.path.lexists(folder / name):
                return folder / name
        others = sorted(file.name for file in folder.glob("*.json"))
    asked = classes[0]
    choices = "" if asked == GoldenClass.of_pair(pair) else f" --device {asked.device} --dtype {asked.dtype}"
    raise InputError(
        "the pair has no golden" + (" of this class" if others else ""),
        file=folder or pair.file,
        key=None if folder else "golden",
        found=", ".join(others) or None,
        expected=" or ".join(names),
        next_step=f"harness record {pair.file}{choices}",
    )
