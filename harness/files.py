"""Reading and writing files so that a bad one is told and no half one is left."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.errors import InputError

__all__ = ["hash_file", "hash_ids", "read_json_object", "read_text", "replacing", "write_atomically"]


def read_text(path: Path, *, what: str, next_step: str | None = None) -> str:
    """Read a UTF-8 text file.

    Args:
        path: The file.
        what: What the file is, for the message ("pair file").
        next_step: What the user should do if it is not there.

    Raises:
        InputError: The file is missing, unreadable or no UTF-8 text.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise InputError(f"the {what} does not exist", file=path, next_step=next_step) from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"the {what} is not text",
            file=path,
            found=f"byte 0x{error.object[error.start]:02x} at {error.start}",
            expected="UTF-8 text",
        ) from None
    except OSError as error:
        raise InputError(f"the {what} cannot be read", file=path, found=error.strerror or str(error)) from None


def read_json_object(path: Path, *, what: str, next_step: str | None = None) -> dict[str, Any]:
    """Read a file that holds one JSON object.

    Raises:
        InputError: The file is missing, no JSON, holds a repeated key, or something else than an object.
    """
    text = read_text(path, what=what, next_step=next_step)
    try:
        value = json.loads(text, object_pairs_hook=_no_duplicates)
    except json.JSONDecodeError as error:
        raise InputError(
            f"the {what} is not valid JSON", file=path, key=f"line {error.lineno}", found=error.msg, next_step=next_step
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"the {what} is not usable JSON", file=path, found=str(error), next_step=next_step) from None
    if not isinstance(value, dict):
        raise InputError(
            f"the {what} holds no JSON object",
            file=path,
            found=type(value).__name__,
            expected="an object",
            next_step=next_step,
        )
    return value


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {repeated!r} stands twice")
    return result


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, as hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def hash_ids(ids: list[int]) -> str:
    """Return a 16-digit hash of token ids: what identifies a prompt, whatever its text was written as."""
    return hashlib.sha256(json.dumps(ids, separators=(",", ":")).encode()).hexdigest()[:16]


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` that takes its place when the block ends, and is removed when it fails.

    Raises:
        InputError: The folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise InputError(
            "the folder cannot be written",
            file=path.parent,
            found=error.strerror or str(error),
            next_step="make it writable or name another folder",
        ) from None
    os.close(handle)
    part = Path(name)
    try:
        yield part
        with part.open("rb+") as stream:
            os.fsync(stream.fileno())
        # mkstemp makes files private; what replaces an ordinary file should be as readable as one.
        umask = os.umask(0)
        os.umask(umask)
        part.chmod(0o666 & ~umask)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Write bytes to `path` by a temporary file and a rename.

    Raises:
        InputError: The folder cannot be written.
    """
    with replacing(path) as part:
        try:
            part.write_bytes(data)
        except OSError as error:
            raise InputError("the file cannot be written", file=path, found=error.strerror or str(error)) from None
