"""Reading files with errors that name what is wrong, and writing them so that a half-written one is never left."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from harness.errors import InputError, invalid

if TYPE_CHECKING:
    import pydantic

_Model = TypeVar("_Model", bound="pydantic.BaseModel")

__all__ = [
    "as_model",
    "cache_folder",
    "hash_file",
    "hash_ids",
    "is_file",
    "is_folder",
    "json_text",
    "making",
    "ordinary_mode",
    "parse_json",
    "read_json_object",
    "read_text",
    "replacing",
    "require_writable",
    "shown",
    "write_atomically",
]


def is_file(path: Path) -> bool:
    """Return whether a path is a file; a path that the system refuses to look up is not one."""
    # Path.is_file raises if a name is too long or a folder may not be searched.
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder; see `is_file`."""
    return os.path.isdir(path)  # noqa: PTH112


def shown(path: Path) -> str:
    """Return a path for a message: resolved, and relative if it is below the working directory."""
    resolved = path.resolve()
    here = Path.cwd()
    return str(resolved.relative_to(here) if resolved.is_relative_to(here) else resolved)


def read_text(path: Path, *, what: str, next_step: str | None = None) -> str:
    """Read a UTF-8 text file.

    Args:
        path: The file to read.
        what: The file's role, for messages ("pair file").
        next_step: An instruction to the user if the file cannot be read.

    Raises:
        InputError: The file is missing, unreadable or not UTF-8 text, or begins with a byte order mark.
    """
    expected = "UTF-8 text"
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise InputError(
            f"the {what} does not exist", file=path, next_step=next_step or "create it, or correct the path"
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"the {what} is not text",
            file=path,
            found=f"byte 0x{error.object[error.start]:02x} at {error.start}",
            expected=expected,
            next_step=next_step,
        ) from None
    except (OSError, ValueError) as error:
        # ValueError: the path contains a NUL.
        raise InputError(
            f"the {what} cannot be read",
            file=path,
            found=getattr(error, "strerror", None) or str(error),
            expected="a text file",
            next_step=next_step,
        ) from None
    if text.startswith("\ufeff"):
        raise InputError(
            f"the {what} begins with a byte order mark",
            file=path,
            found="U+FEFF",
            expected=f"{expected} without one",
            next_step="save it as UTF-8 without a byte order mark",
        )
    return text


def read_json_object(path: Path, *, what: str, next_step: str | None = None) -> dict[str, Any]:
    """Read a file that contains one JSON object.

    Raises:
        InputError: The file is missing or not valid JSON, repeats a key, or contains something other than an object.
    """
    text = read_text(path, what=what, next_step=next_step)
    try:
        value = parse_json(text)
    except ValueError as error:
        line = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else None
        raise InputError(
            f"the {what} is not valid JSON",
            file=path,
            key=line,
            found=getattr(error, "msg", str(error)),
            expected="one JSON object",
            next_step=next_step,
        ) from None
    if not isinstance(value, dict):
        raise InputError(
            f"the {what} is not a JSON object",
            file=path,
            found=type(value).__name__,
            expected="an object",
            next_step=next_step,
        )
    return value


def as_model(raw: dict[str, Any], model: type[_Model], *, file: Path, what: str, next_step: str) -> _Model:
    """Return a JSON object that was read from a file as a strict pydantic model.

    Args:
        raw: The object, from `read_json_object`.
        model: The model that the file must fit.
        file: The file that it was read from, for the message.
        what: The kind of file, for the message.
        next_step: The user's next step if it does not fit.

    Raises:
        InputError: The object does not fit the model.
    """
    from pydantic import ValidationError

    try:
        # As JSON again: a strict model takes a list for a tuple only there, and refuses a count written as text.
        return model.model_validate_json(json.dumps(raw))
    except RecursionError:
        raise InputError(f"the {what}'s values are nested too deeply", file=file, next_step=next_step) from None
    except ValidationError as error:
        raise invalid(error, model, file=file, next_step=next_step) from None


def parse_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: It is not valid JSON, repeats a key in an object, or is nested more deeply than Python can read.
    """
    try:
        return json.loads(text, object_pairs_hook=_no_duplicates)
    except RecursionError:
        raise ValueError("values nested too deeply") from None


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {repeated!r} occurs twice")
    return result


def json_text(value: Any, *, indent: int | None = 2, ascii_only: bool = False) -> str:
    """Return the JSON of a value, for a file or for stdout.

    Args:
        value: Dictionaries with text as keys, lists, tuples, text, numbers, booleans and `None`.
        indent: Spaces per level; `None` puts everything on one line.
        ascii_only: Whether to escape all other characters.

    Returns:
        The text, without a final line break. Infinity and NaN become null: strict readers of JSON refuse them.
    """
    return json.dumps(_without_infinity(value), indent=indent, ensure_ascii=ascii_only, allow_nan=False)


def _without_infinity(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_infinity(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinity(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def cache_folder() -> Path:
    """Return the folder for what can be computed again: `HARNESS_CACHE`, else the one that the system has for this."""
    import platformdirs

    chosen = os.environ.get("HARNESS_CACHE")
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("acceptance-harness"))


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, as hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def hash_ids(ids: list[int]) -> str:
    """Return a 16-digit hash of token ids, which identifies a prompt however its text was written."""
    return hashlib.sha256(json.dumps(ids, separators=(",", ":")).encode()).hexdigest()[:16]


def require_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written, before any work is done for the files that go into it.

    Raises:
        InputError: The folder cannot be created or written.
    """
    with making(folder):
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise _unwritable(folder, error) from None


@contextlib.contextmanager
def making(folder: Path) -> Iterator[None]:
    """Create a folder for a block; folders that were created and are still empty when the block ends are removed.

    Raises:
        InputError: The folder cannot be created.
    """
    missing = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(folder, error) from None
        yield
    finally:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`, which replaces it when the block ends and is removed if the block fails.

    Raises:
        InputError: The folder or the file cannot be written.
    """
    with making(path.parent):
        try:
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        except OSError as error:
            raise _unwritable(path.parent, error) from None
        os.close(handle)
        part = Path(name)
        try:
            yield part
            with part.open("rb+") as stream:
                os.fsync(stream.fileno())
            # mkstemp makes files private; the file that it replaces was as readable as the umask allows.
            part.chmod(ordinary_mode())
            part.replace(path)
        except OSError as error:
            raise _unwritable(path, error) from None
        finally:
            part.unlink(missing_ok=True)


def ordinary_mode() -> int:
    """Return the permissions of a file that the user creates, by the umask."""
    # The umask can only be read by setting it.
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(
        "the file or folder cannot be written",
        file=path,
        found=error.strerror or str(error),
        next_step="make it writable and free some disk space, or name another folder",
    )


def write_atomically(path: Path, data: bytes) -> None:
    """Write bytes to a temporary file and rename it to `path`, so that no reader ever sees half of them.

    Raises:
        InputError: The folder or the file cannot be written.
    """
    with replacing(path) as part:
        part.write_bytes(data)
