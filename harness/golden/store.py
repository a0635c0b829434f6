"""How a golden is read and written without ever leaving a broken one.

`golden/<pair>/<engine>-<device>-<dtype>.json` names its tensors, `<sha256>.safetensors` next to it. The new tensors are
written first, then the JSON by rename, then the old tensors are removed: a crash at any moment leaves a valid golden.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import filelock

from harness.errors import InputError, quote
from harness.files import as_model, hash_file, making, ordinary_mode, read_json_object, write_atomically
from harness.golden.golden_class import GoldenClass, is_class_name
from harness.golden.schema import SCHEMA_VERSIONS, GoldenDocument, dump
from harness.golden.tensors import TENSORS_NAME, GoldenTensors, load_tensors, tensors_class

__all__ = ["Golden", "golden_files", "load_golden", "recorded_by", "save_golden", "unused_tensors"]

_ADVICE = "restore it from version control, or remove it and record it again"


@dataclass(frozen=True)
class Golden:
    """A golden baseline whose JSON and tensors have been read and checked."""

    file: Path
    document: GoldenDocument
    tensors: dict[str, GoldenTensors]

    @property
    def golden_class(self) -> GoldenClass:
        """The engine, device and dtype it was recorded on."""
        return GoldenClass(self.document.engine, self.document.device, self.document.dtype)

    def continuation(self, prompt: str) -> tuple[int, ...]:
        """Return the reference continuation of a prompt, by its id."""
        return tuple(self.tensors[prompt].continuation.tolist())


def load_golden(file: Path) -> Golden:
    """Read a golden and check everything that can be checked without running a model.

    Raises:
        InputError: It is missing, has another schema version, contradicts itself, or lacks the recorded tensors.
    """
    raw = read_json_object(file, what="golden", next_step=_ADVICE)
    if raw.get("schema_version") not in SCHEMA_VERSIONS:
        raise InputError(
            "the golden has another schema version",
            file=file,
            key="schema_version",
            found=quote(raw.get("schema_version")),
            expected=" or ".join(map(str, SCHEMA_VERSIONS)),
            next_step="record it again with this version of acceptance-harness",
        )
    document = as_model(raw, GoldenDocument, file=file, what="golden", next_step=_ADVICE)
    golden = Golden(file, document, load_tensors(file.parent / document.tensors, document))
    if file.name != golden.golden_class.file:
        raise InputError(
            "the golden was recorded on another class than its file name says",
            file=file,
            key="engine, device, dtype",
            found=str(golden.golden_class),
            expected=file.stem,
            next_step=_ADVICE,
        )
    if document.dtype not in document.noise and any(part.proposals is not None for part in golden.tensors.values()):
        # Without a noise floor the proposals and likelihood detectors have nothing to judge by, and would say nothing.
        raise InputError(
            "the golden has proposals but lacks the noise floor of its dtype",
            file=file,
            key=f"noise.{document.dtype}",
            found=f"noise floors of {', '.join(document.noise) or 'no dtype'}",
            next_step=_ADVICE,
        )
    return golden


def save_golden(file: Path, document: GoldenDocument, tensors: bytes) -> None:
    """Write a golden: tensors first, then the JSON, so that a crash in between leaves the old golden intact.

    The folder is locked while the files are written, so that other processes can save into it. Of what it contains only
    files of this golden's class that the harness itself wrote are ever removed, see `_Leftovers`.

    Raises:
        InputError: The folder cannot be written, or another process keeps it locked.
    """
    with making(file.parent), _locked(file.parent):
        leftovers = _Leftovers.of(file)
        try:
            write_atomically(file.parent / document.tensors, tensors)
            write_atomically(file, dump(document))
        finally:
            # After a failure too: the tensors just written are then the ones that no golden names.
            leftovers.remove(file.parent / document.tensors)


# Writing takes seconds, even on a slow network file system. A process that holds the lock for longer is stuck.
_PATIENCE = 600.0
_LOCK_NAME = ".lock"


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = folder / _LOCK_NAME
    try:
        # The file stays in the folder: a process that removed it could remove it from under one that waits for it.
        with filelock.FileLock(lock, timeout=_PATIENCE, mode=ordinary_mode()):
            try:
                yield
            except BaseException:
                # A first save that fails leaves nothing at all behind.
                if {file.name for file in folder.iterdir()} == {_LOCK_NAME}:
                    lock.unlink(missing_ok=True)
                raise
    except filelock.Timeout:
        raise InputError(
            "another process is writing goldens into the folder",
            file=lock,
            found=f"locked for more than {_PATIENCE:.0f} s",
            next_step="wait until it has finished, or end it",
        ) from None
    except OSError as error:
        raise InputError(
            "the folder of goldens cannot be locked",
            file=lock,
            found=error.strerror or str(error),
            next_step="make the folder writable, or name another one in the pair file's golden key",
        ) from None


@dataclass(frozen=True)
class _Leftovers:
    """What an earlier save of one golden's class has left in its folder, and what a later one may remove of it.

    A golden's folder belongs to the user and may contain anything, such as a draft's `model.safetensors`. A file is
    removed only if its name is the hash of its content, as that of a golden's tensors is, and the golden that is being
    replaced named it, or it says itself that it was written for this class. Nothing that another golden names is.

    Attributes:
        file: The golden's JSON.
        named: The tensors that the golden being replaced names.
    """

    file: Path
    named: str | None

    @classmethod
    def of(cls, file: Path) -> Self:
        """Return what the golden in place names, before it is replaced."""
        return cls(file, _names_tensors(file))

    def remove(self, written: Path) -> None:
        """Remove tensors and temporary files of this class that are of no use any more.

        Args:
            written: The tensors of the save that has just ended, in whatever way.
        """
        folder = self.file.parent
        used = {name for other in golden_files(folder) if (name := _names_tensors(other)) is not None}
        for tensors in _tensor_files(folder):
            ours = tensors.name in (self.named, written.name) or tensors_class(tensors) == self.file.stem
            if ours and tensors.name not in used and _is_own_hash(tensors):
                tensors.unlink(missing_ok=True)
        for part in folder.glob(".*.part"):
            # A process that was killed while it wrote: only the process that holds the lock writes now.
            name = part.name.removeprefix(".").rpartition(".part")[0].rpartition(".")[0]
            if name == self.file.name or TENSORS_NAME.fullmatch(name):
                part.unlink(missing_ok=True)


def recorded_by(file: Path) -> str | None:
    """Return the pair file that a golden names as its own, relative to its folder; `None` if it does not say."""
    try:
        name = read_json_object(file, what="golden").get("pair_file")
    except InputError:
        return None
    return name if isinstance(name, str) else None


def _names_tensors(file: Path) -> str | None:
    """Return the tensors file that a golden's JSON names, `None` if there is no golden or it cannot be read."""
    try:
        name = read_json_object(file, what="golden").get("tensors")
    except InputError:
        return None
    return name if isinstance(name, str) and TENSORS_NAME.fullmatch(name) else None


def golden_files(folder: Path) -> list[Path]:
    """Return the files of a folder that are goldens by their names; any other JSON is somebody else's."""
    return sorted(file for file in folder.glob("*.json") if is_class_name(file.stem))


def _tensor_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*.safetensors") if TENSORS_NAME.fullmatch(file.name))


def _is_own_hash(file: Path) -> bool:
    try:
        return hash_file(file) == file.stem
    except OSError:
        return False


def unused_tensors(folder: Path) -> list[Path]:
    """Return the tensor files that no golden of the folder references; empty if one of the goldens cannot be read."""
    used = []
    for other in golden_files(folder):
        try:
            used.append(read_json_object(other, what="golden").get("tensors"))
        except InputError:
            return []
    return [file for file in _tensor_files(folder) if file.name not in used]
