"""Where the goldens of a pair are stored, and which one a run is compared with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from harness.errors import InputError
from harness.files import is_folder
from harness.golden.golden_class import DEFAULT, GoldenClass
from harness.golden.store import golden_files
from harness.pair.builtin import builtin_root
from harness.pair.locate import relative_path
from harness.pair.pair import Pair
from harness.pair.pairfile import PairFile, read_pair_file

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
    """Return the golden that a check of the pair compares with: the nearest one that there is.

    The order is: the pair's own class; the same engine on another device or in another dtype, the same device first;
    the reference engine on the pair's device and in its dtype; the reference engine's default class.

    Raises:
        InputError: There is none of them.
    """
    return find_golden(pair, *_nearest_classes(pair))


def _nearest_classes(pair: Pair) -> list[GoldenClass]:
    own, folder = GoldenClass.of_pair(pair), golden_folder(pair)
    there = [] if folder is None else [GoldenClass.parse(file.stem) for file in golden_files(folder)]
    same_engine = sorted(
        (one for one in there if one.engine == own.engine),
        key=lambda one: (one.device != own.device, one.dtype != own.dtype, one.file),
    )
    order = [own, *same_engine, GoldenClass(DEFAULT.engine, own.device, own.dtype), DEFAULT]
    return list(dict.fromkeys(order))


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
        others = [file.name for file in golden_files(folder)]
    asked = classes[0]
    raise InputError(
        "the pair has no golden" + (" of this class" if others else ""),
        file=folder or pair.file,
        key=None if folder else "golden",
        found=", ".join(others) or None,
        expected=" or ".join(names),
        next_step=f"harness record {pair.file}{_options(pair, asked)}",
    )


def _options(pair: Pair, asked: GoldenClass) -> str:
    """Return the options by which `harness record` records a golden of a class, as far as the pair file differs."""
    own = read_pair_file(pair.file).engine
    if asked.engine == "server":
        # An address selects the engine, and a server reports its own device and dtype.
        endpoint = pair.settings.engine.endpoint or "URL"
        return "" if own.name == "server" and own.endpoint == endpoint else f" --endpoint {endpoint}"
    options = "" if asked.engine == own.name.partition(":")[0] else f" --engine {asked.engine}"
    if asked.device != own.device.partition(":")[0]:
        options += f" --device {asked.device}"
    return options if asked.dtype == own.dtype else f"{options} --dtype {asked.dtype}"
