"""Refusal of a config that has a library fetch code: a checkpoint is data, and nothing that it names is run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.errors import InputError, quote

__all__ = ["require_inert"]

# transformers takes the attention and experts that a config names under such keys. A name with a slash is a kernel of
# a repository on the hub, which it downloads and imports if the package `kernels` is installed.
# Source: transformers.integrations.hub_kernels.is_kernel, and PreTrainedConfig, whose sections have them too.
_ENDING = "_implementation"
_NAME = re.compile(r"[A-Za-z0-9_]{0,64}")


def require_inert(raw: dict[str, Any], file: Path) -> None:
    """Refuse a config that names code to be fetched from a hub.

    Classes of the checkpoint's own (`auto_map`) are not refused: transformers has its own class for most such models,
    and is never allowed to run theirs.

    Args:
        raw: The content of a `config.json`.
        file: Where it was read from.

    Raises:
        InputError: An attention or experts implementation is not one of the library's own.
    """
    for key, value in _implementations(raw):
        if value is not None and not (isinstance(value, str) and _NAME.fullmatch(value)):
            raise InputError(
                "the config names code to be run, which the harness does not fetch",
                file=file,
                key=key,
                found=quote(value),
                expected="an implementation of transformers itself, such as sdpa or eager, or no such key",
                next_step="remove the key: transformers then chooses by itself",
            )


def _implementations(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each implementation that a config names, for all of the model or for parts of it, with its key."""
    items = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    for key, item in items:
        name = f"{prefix}{key}"
        if not str(key).endswith(_ENDING):
            yield from _implementations(item, f"{name}.")
        elif isinstance(item, dict):
            yield from ((f"{name}.{part}", one) for part, one in item.items())
        else:
            yield name, item
