"""Where the built-in pairs, prompts and goldens are: in the checkout, or in the copies that the wheel carries."""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path

from harness.errors import InputError
from harness.files import is_file, is_folder

__all__ = ["builtin_root", "find_pair", "find_prompts", "is_checkout"]

_PACKAGE = Path(__file__).resolve().parents[1]
# Anything else is a path, and messages treat it as one.
_SET_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")


def builtin_root() -> Path:
    """Return the folder with `fixtures/` and `golden/`.

    A checkout around the current folder or the package wins over the wheel's copies, so that an edit to `fixtures/` is
    measured there.
    """
    cwd = Path.cwd()
    for folder in (cwd, *cwd.parents, _PACKAGE.parent):
        if is_checkout(folder):
            return folder
    return _PACKAGE / "builtin"


@functools.cache
def is_checkout(folder: Path) -> bool:
    """Return whether a folder is a checkout of this project, whose goldens its users record."""
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
        InputError: It is neither a file nor a built-in pair.
    """
    path = Path(name_or_path)
    if is_file(path):
        return path
    # The small pairs are in one folder; a pair whose target must be made first is next to the scripts that make it.
    files = {file.name.removesuffix(".pair.toml"): file for file in builtin_root().glob("fixtures/*/*.pair.toml")}
    if name_or_path in files:
        return files[name_or_path]
    names = sorted(files)
    raise InputError(
        "no such pair file or built-in pair",
        file=name_or_path,
        expected=f"a path to a .pair.toml, or one of: {', '.join(names) or 'none (the installation is incomplete)'}",
    )


def find_prompts(pair_file: Path, value: str, path: Path) -> Path:
    """Return the prompts file that a pair file means: a path, or the name of a built-in set.

    Args:
        pair_file: The pair file, for messages.
        value: The value of its key `prompts`.
        path: The value as a path; a file or folder there wins over a built-in set of the same name.

    Raises:
        InputError: The value looks like a name, and there is neither a file nor a built-in set of that name.
    """
    if not _SET_NAME.fullmatch(value) or is_file(path) or is_folder(path):
        return path
    folder = builtin_root() / "fixtures" / "prompts"
    builtin = folder / f"{value}.jsonl"
    if is_file(builtin):
        return builtin
    names = sorted(file.stem for file in folder.glob("*.jsonl"))
    raise InputError(
        "no such prompts file or built-in set of prompts",
        file=pair_file,
        key="prompts",
        found=value,
        expected=f"a path to a .jsonl, or one of: {', '.join(names) or 'none (the installation is incomplete)'}",
    )
