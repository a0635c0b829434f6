"""Where the paths and checkpoints of a pair file are."""

from __future__ import annotations

from pathlib import Path

from harness.errors import InputError, quote
from harness.files import is_file, is_folder
from harness.pair.hub import Checkpoint, fetch_descriptions

__all__ = ["find_checkpoint", "relative_path"]


def relative_path(pair_file: Path, key: str, value: str) -> Path:
    """Return the path that a key of a pair file means: relative to the file, or below a home folder.

    Raises:
        InputError: The value is not a path that a file system can have.
    """
    try:
        if "\0" not in value:
            return pair_file.parent / Path(value).expanduser()
    except RuntimeError:
        # The path begins with ~ and the name of a user that does not exist.
        pass
    raise InputError("the value is not usable", file=pair_file, key=key, found=quote(value), expected="a path")


def find_checkpoint(
    pair_file: Path, key: str, value: str, revision: str | None = None, *, made_by: str | None = None
) -> Checkpoint:
    """Return where a checkpoint is: a path, or a hub id, of which only what describes it is downloaded.

    Args:
        pair_file: The pair file, for messages.
        key: The key of the pair file that names the checkpoint, `target` or `draft`.
        value: What the key says.
        revision: The revision of a hub id.
        made_by: The command that makes the folder if it is missing.

    Raises:
        InputError: There is no such checkpoint.
    """
    path = relative_path(pair_file, key, value)
    if is_folder(path):
        return Checkpoint(key, path)
    # A hub id is owner/name. If the first part is a folder here, a path was meant and its end is misspelt: asking the
    # hub for it would only hide the slip behind a network error.
    is_path = value.startswith((".", "/", "~")) or value.count("/") != 1
    if is_path or is_file(path) or is_folder(path.parent):
        raise InputError(
            f"the {key} is not a checkpoint folder",
            file=pair_file,
            key=key,
            found=str(path),
            expected="a folder with config.json and safetensors, or a hub id",
            next_step=None if made_by is None else f"make it: {made_by}",
        )
    return fetch_descriptions(pair_file, key, value, revision)
