"""A checkpoint as SGLang is given it: its data without its code, which SGLang would run unasked.

With `trust_remote_code` off, SGLang 0.5.23 still imports what `auto_map` names: of a target or draft whose class it
does not have (`sglang.srt.model_loader.utils.resolve_transformers_arch`), and of a processor
(`sglang.srt.utils.hf_transformers.processor`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.files import is_file

__all__ = ["data_only"]

_SOURCES = (".py", ".pyc")
# The key under which a config, a tokenizer's or a processor's, names classes in a checkpoint's files or on the hub.
_CLASSES = "auto_map"


def data_only(checkpoint: Path, into: Path) -> Path:
    """Return a folder with the data of a checkpoint and without its code.

    Args:
        checkpoint: The checkpoint's folder.
        into: The folder to make if the checkpoint has Python files, or names classes that are in any. It gets a link to
            each of the other files, and the JSON files without what names classes.

    Returns:
        `into`, or the checkpoint's own folder if it does not have code.
    """
    present = [file for file in sorted(checkpoint.iterdir()) if is_file(file)]
    files = [file for file in present if file.suffix not in _SOURCES]
    contents = {file: _parsed(file) for file in files if file.suffix == ".json"}
    naming = [file for file, content in contents.items() if content is None or _without_code(content) != content]
    if not naming and files == present:
        return checkpoint
    into.mkdir()
    for file in files:
        if file not in naming:
            (into / file.name).symlink_to(file.resolve())
        # JSON that cannot be read here cannot be read there either.
        elif contents[file] is not None:
            (into / file.name).write_text(json.dumps(_without_code(contents[file])), encoding="utf-8")
    return into


def _parsed(file: Path) -> Any:
    """Return the JSON value in a file; `None` if it is not JSON."""
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def _without_code(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_code(item) for key, item in value.items() if key != _CLASSES}
    return [_without_code(item) for item in value] if isinstance(value, list) else value
