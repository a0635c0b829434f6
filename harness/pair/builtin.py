"""Where the built-in pairs and goldens are: the checkout's own files, or the copies that the wheel carries."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path

from harness.errors import InputError
from harness.files import is_file, is_folder

__all__ = ["builtin_root", "find_pair"]

_PACKAGE = Path(__file__).resolve().parents[1]


def builtin_root() -> Path:
    """Return the folder that holds `fixtures/` and `golden/`.

    A checkout that the current folder or the package lies in wins over the wheel's copies, so that an edit to
    `fixtures/` is what gets measured there.
    """
    cwd = Path.cwd()
    for folder in (cwd, *cwd.parents, _PACKAGE.parent):
        if _is_checkout(folder):
            return folder
    return _PACKAGE / "builtin"


@functools.cache
def _is_checkout(folder: Path) -> bool:
    project = folder / "pyproject.toml"
    if not (is_file(project) and is_folder(folder / "fixtures" / "pairs")):
        return False
    try:
        name = tomllib.loads(project.read_text(encoding="utf-8")).get("project", {}).get("name")
    except (OSError, ValueError, AttributeError, RecursionError):
        return False
    return bool(name == "acceptance-harness")


def find_pair(name_or_path: str) -> Path:
    """Return the pair file that a command line's PAIR means: a path, or the name of a built-in pair.

    Raises:
        InputError: Neither a file nor a built-in pair.
    """
    path = Path(name_or_path)
    if is_file(path):
        return path
    folder = builtin_root() / "fixtures" / "pairs"
    builtin = folder / f"{name_or_path}.pair.toml"
    if path.name == name_or_path and is_file(builtin):
        return builtin
    names = sorted(file.name.removesuffix(".pair.toml") for file in folder.glob("*.pair.toml"))
    raise InputError(
        "no such pair file, and no built-in pair of that name",
        file=name_or_path,
        expected=f"a path to a .pair.toml, or one of: {', '.join(names) or 'none (the installation is incomplete)'}",
    )
