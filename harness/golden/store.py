"""How a golden is read and written without ever leaving a broken one.

`golden/<pair>/<engine>-<device>-<dtype>.json` names its tensors, `<sha256>.safetensors` next to it. The new tensors are
written first, then the JSON by rename, then the old tensors are removed: a crash at any moment leaves a valid golden.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.errors import InputError, quote
from harness.files import as_model, making, read_json_object, write_atomically
from harness.golden.golden_class import GoldenClass
from harness.golden.schema import SCHEMA_VERSION, GoldenDocument, dump
from harness.golden.tensors import GoldenTensors, load_tensors

__all__ = ["Golden", "load_golden", "save_golden", "unused_tensors"]

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
    if raw.get("schema_version") != SCHEMA_VERSION:
        raise InputError(
            "the golden has another schema version",
            file=file,
            key="schema_version",
            found=quote(raw.get("schema_version")),
            expected=SCHEMA_VERSION,
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


def _remove_parts(folder: Path) -> None:
    """Remove temporary files left by a process that was killed while it wrote."""
    for part in folder.glob(".*.part"):
        part.unlink(missing_ok=True)


def save_golden(file: Path, document: GoldenDocument, tensors: bytes) -> None:
    """Write a golden: tensors first, then the JSON, so that a crash in between leaves the old golden intact.

    Raises:
        InputError: The folder cannot be written.
    """
    with making(file.parent):
        try:
            write_atomically(file.parent / document.tensors, tensors)
            write_atomically(file, dump(document))
        finally:
            # After a failure too: remove tensor files that no golden references.
            _remove_unused(file.parent)
            _remove_parts(file.parent)


def unused_tensors(folder: Path) -> list[Path]:
    """Return the tensor files that no golden of the folder references; empty if one of the goldens cannot be read."""
    used = []
    for other in folder.glob("*.json"):
        try:
            used.append(read_json_object(other, what="golden").get("tensors"))
        except InputError:
            return []
    return sorted(file for file in folder.glob("*.safetensors") if file.name not in used)


def _remove_unused(folder: Path) -> None:
    for file in unused_tensors(folder):
        file.unlink(missing_ok=True)
