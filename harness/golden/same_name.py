"""Pair files of one name: they share the goldens of that name, so they must be one pair.

A pair may have several files, one for each engine that serves it. They must then agree on everything that a golden is
about, and each must record a golden of its own class. Otherwise one of them would overwrite the other's golden, or be
compared with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.errors import InputError
from harness.files import is_file, is_folder, shown
from harness.golden.find import golden_home
from harness.golden.golden_class import GoldenClass
from harness.golden.store import golden_files, recorded_by
from harness.pair.locate import relative_path
from harness.pair.pairfile import PairFile, read_pair_file

__all__ = ["require_one_pair", "require_own_golden"]


def require_one_pair(
    first: tuple[Path, PairFile], second: tuple[Path, PairFile], *, same_class: bool | None = None
) -> None:
    """Refuse two pair files that have one name and one golden folder, and are not one pair on two engines.

    Args:
        first: A pair file and its content.
        second: Another one.
        same_class: Whether both record goldens of the same class; `None` if their own engine settings determine that.

    Raises:
        InputError: They would write the same golden, or disagree on what it is about; the message names both.
    """
    (file, settings), (other, theirs) = first, second
    if file.resolve() == other.resolve() or settings.name != theirs.name:
        return
    if golden_home(file, settings).resolve() != golden_home(other, theirs).resolve():
        return
    for key, ours in _identity(file, settings).items():
        found = _identity(other, theirs)[key]
        if ours != found:
            raise InputError(
                f"{shown(other)} has the same name, and another {key}",
                file=file,
                key=key,
                found=f"{ours}, and there {found}",
                expected="a name of its own, or the same pair on another engine",
                next_step="give one of the two files another name, or another golden folder",
            )
    if same_class is None:
        same_class = _class_of(settings) == _class_of(theirs)
    if same_class:
        raise InputError(
            f"{shown(other)} has the same name and would write the same golden",
            file=file,
            key="name",
            found=settings.name,
            expected="a name of its own, or another engine, device or dtype",
            next_step="give one of the two files another name, or another golden folder",
        )


def require_own_golden(file: Path, settings: PairFile, golden: Path) -> None:
    """Refuse to write a golden into a folder in which another pair file of the same name keeps its own.

    Args:
        file: The pair file.
        settings: Its content.
        golden: The golden that would be written.

    Raises:
        InputError: The folder contains a golden of another pair file that still exists and has the same name.
    """
    for other in golden_files(golden.parent) if is_folder(golden.parent) else ():
        for source in _sources(other):
            theirs = read_pair_file(source)
            require_one_pair((file, settings), (source, theirs), same_class=other.name == golden.name)


def _sources(golden: Path) -> Iterator[Path]:
    """Yield the pair file that a golden was recorded by, if it is still there and readable."""
    name = recorded_by(golden)
    if name is None:
        return
    source = golden.parent / name
    if is_file(source):
        try:
            read_pair_file(source)
        except InputError:
            return
        yield source


def _class_of(settings: PairFile) -> GoldenClass:
    engine = settings.engine
    return GoldenClass.of(engine.name, engine.device, engine.dtype)


def _identity(file: Path, settings: PairFile) -> dict[str, Any]:
    """Return what two files of one pair must agree on, by the keys of a pair file."""

    def place(key: str, value: str) -> str:
        path = relative_path(file, key, value)
        # A hub id or the name of a built-in set of prompts is the same wherever the pair file is.
        return os.fspath(path.resolve()) if path.exists() else value

    template = settings.chat_template
    return {
        "target": place("target", settings.target),
        "target_revision": settings.target_revision,
        "draft": place("draft", settings.draft),
        "draft_revision": settings.draft_revision,
        "prompts": place("prompts", settings.prompts),
        "chat_template": template if template in ("target", "none") else place("chat_template", template),
        "thinking": settings.thinking,
        "decode": settings.decode.comparable(),
    }
