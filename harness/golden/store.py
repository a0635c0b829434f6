"""Where goldens are kept, and how they are read and written without ever leaving a broken one.

`golden/<pair>/<engine>-<device>-<dtype>.json` names its tensors, `<sha256>.safetensors` beside it. Written: the new
tensors first, then the JSON by rename, then the old tensors are removed. A crash at any moment leaves a valid golden.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pydantic
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from harness.counts.rounds import Limits
from harness.counts.stages import POSITIONS, WIDTH
from harness.errors import InputError, one_line, quote
from harness.files import hash_file, is_folder, making, read_json_object, write_atomically
from harness.golden.schema import SCHEMA_VERSION, GoldenDocument, dump
from harness.pair.builtin import builtin_root
from harness.pair.locate import relative_path
from harness.pair.pair import Pair
from harness.pair.pairfile import PairFile

__all__ = [
    "DEFAULT_CLASS",
    "Golden",
    "GoldenTensors",
    "find_golden",
    "golden_folder",
    "golden_home",
    "load_golden",
    "nearest_homes",
    "save_golden",
    "unused_tensors",
]

DEFAULT_CLASS = "reference-cpu-float32"
_ADVICE = "restore it from version control, or remove it and record it anew"


@dataclass(frozen=True)
class GoldenTensors:
    """What is kept per prompt beside the counts.

    Attributes:
        continuation: int32 [L]: the reference continuation.
        proposals: int32 [n, k]: the chain at every position at which a round could start.
        logprobs: float32 [n, k]: log-probability of the text's token by step, NaN outside the position set.
        sketches: float32 [POSITIONS, stages, WIDTH]: of every stage, see `harness.counts.stages`.
    """

    continuation: NDArray[np.int32]
    proposals: NDArray[np.int32] | None
    logprobs: NDArray[np.float32] | None
    sketches: NDArray[np.float32] | None


@dataclass(frozen=True)
class Golden:
    """A golden baseline, read and checked."""

    file: Path
    document: GoldenDocument
    tensors: dict[str, GoldenTensors]

    @property
    def device_class(self) -> str:
        """The class it was recorded on: engine, device, dtype."""
        return self.file.stem


def nearest_homes(start: Path) -> Iterator[Path]:
    """Yield each `golden/` upward from a folder, the nearest first."""
    start = start.resolve()
    for folder in (start, *start.parents):
        if is_folder(folder / "golden"):
            yield folder / "golden"


def golden_home(file: Path, settings: PairFile) -> Path:
    """Return the folder in which a pair's goldens are written, under its name.

    It is the pair file's `golden` key, else the nearest `golden/` upward from the pair file, else one beside it.
    """
    if settings.golden is not None:
        return relative_path(file, "golden", settings.golden)
    beside = file.resolve().parent
    return next(nearest_homes(beside), beside / "golden")


def golden_folder(pair: Pair, *, for_writing: bool = False) -> Path | None:
    """Return the folder that holds, or would hold, the pair's goldens.

    It is the pair file's `golden` key, else the nearest `golden/` upward from the pair file that has goldens of the
    pair, else the built-in one; to write, see `golden_home`.
    """
    if for_writing or pair.settings.golden is not None:
        return golden_home(pair.file, pair.settings) / pair.name
    for home in (*nearest_homes(pair.file.resolve().parent), builtin_root() / "golden"):
        if is_folder(home / pair.name):
            return home / pair.name
    return None


def find_golden(pair: Pair, device_class: str) -> Path:
    """Return the golden to compare with: of the run's own class, else of the reference on a CPU in float32.

    Raises:
        InputError: There is none.
    """
    folder = golden_folder(pair)
    for name in (device_class, DEFAULT_CLASS):
        if folder is not None and os.path.lexists(folder / f"{name}.json"):
            return folder / f"{name}.json"
    raise InputError(
        "the pair has no golden",
        file=folder or pair.file,
        key=None if folder else "golden",
        expected=" or ".join(dict.fromkeys((f"{device_class}.json", f"{DEFAULT_CLASS}.json"))),
        next_step=f"harness record {pair.file}",
    )


def load_golden(file: Path) -> Golden:
    """Read a golden and check everything in it that can be checked without a model.

    Raises:
        InputError: It is missing, of another schema, does not add up, or its tensors are not the ones it names.
    """
    raw = read_json_object(file, what="golden", next_step=_ADVICE)
    if raw.get("schema_version") != SCHEMA_VERSION:
        raise InputError(
            "the golden has another schema",
            file=file,
            key="schema_version",
            found=quote(raw.get("schema_version")),
            expected=SCHEMA_VERSION,
            next_step="record it again with this version of the harness",
        )
    try:
        # Strict JSON mode: a count written as text is an error, a list is still a tuple.
        document = GoldenDocument.model_validate_json(json.dumps(raw))
    except RecursionError:
        raise InputError("the golden's values are nested too deeply", file=file, next_step=_ADVICE) from None
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        problem = one_line(first["msg"].removeprefix("Value error, "), 240)
        key = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"the golden is not usable: {problem}", file=file, key=key or None, next_step=_ADVICE
        ) from None
    golden = Golden(file, document, _load_tensors(file.parent / document.tensors, document))
    recorded = {"engine": document.engine, "device": document.device, "dtype": document.dtype}
    if golden.device_class != "-".join(recorded.values()):
        raise InputError(
            "the golden was recorded on another class than its name says",
            file=file,
            key=", ".join(recorded),
            found="-".join(recorded.values()),
            expected=golden.device_class,
            next_step=_ADVICE,
        )
    if document.dtype not in document.noise and any(part.proposals is not None for part in golden.tensors.values()):
        # Without it proposals and likelihood could not be judged, and would be silent.
        raise InputError(
            "the golden has proposals, but no noise floor of its own dtype",
            file=file,
            key=f"noise.{document.dtype}",
            found=f"noise of {', '.join(document.noise) or 'nothing'}",
            next_step=_ADVICE,
        )
    return golden


def _load_tensors(file: Path, document: GoldenDocument) -> dict[str, GoldenTensors]:
    advice = "restore it from version control, or remove the golden and record it anew"
    try:
        found = hash_file(file)
    except OSError as error:
        raise InputError(
            "the golden's tensors cannot be read",
            file=file,
            found=error.strerror,
            expected="the file that the golden names under tensors",
            next_step=advice,
        ) from None
    if found != file.stem:
        raise InputError(
            "the golden's tensors are not the ones that were recorded",
            file=file,
            found=f"SHA-256 {found[:16]}…",
            expected=f"{file.stem[:16]}…, as the file's name says",
            next_step=advice,
        )
    try:
        arrays = safetensors.numpy.load_file(file)
        _require_fitting(arrays, document)
        return _split(arrays, document)
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise InputError("the golden's tensors are not usable", file=file, found=str(error), next_step=advice) from None


def _require_fitting(arrays: dict[str, NDArray[Any]], document: GoldenDocument) -> None:
    """Refuse arrays that do not fit the JSON or each other.

    Raises:
        ValueError: An array is missing, of another kind or shape, or holds a value that cannot be.
    """
    outputs = [prompt.output for prompt in document.prompts]
    decode = document.decode
    _require_array(arrays, "texts", "i", (sum(outputs),))
    _require_array(arrays, "starts", "i", (len(outputs),))
    starts = [int(value) for value in arrays["starts"]]
    if {"proposals", "logprobs"} & arrays.keys():
        limits = Limits(decode["max_new_tokens"], decode["num_steps"], eos_ids=())
        # Whether a text ends in EOS or at the limit, its length alone says where rounds could start.
        meant = [limits.starts(range(output)) for output in outputs]
        if starts != meant:
            raise ValueError(f"starts are {starts}, the JSON's outputs give {meant}")
    for name, kind in (("proposals", "i"), ("logprobs", "f")):
        if name in arrays:
            _require_array(arrays, name, kind, (sum(starts), decode["num_steps"]))
    if "sketches" in arrays:
        # How many stages there are follows from the target, which may be found to be another one first.
        stages = arrays["sketches"].shape[2] if arrays["sketches"].ndim == 4 else 1
        _require_array(arrays, "sketches", "f", (len(outputs), POSITIONS, stages, WIDTH))
    for name in ("texts", "proposals"):
        ids = arrays.get(name, np.zeros(0, np.int32))
        outside = ids[(ids < 0) | (ids >= document.target.vocab_size)]
        if len(outside):
            raise ValueError(
                f"{name} hold the token {outside[0]}, the target knows 0 to {document.target.vocab_size - 1}"
            )
    for name in ("logprobs", "sketches"):
        if np.isinf(arrays.get(name, np.zeros(0, np.float32))).any():
            raise ValueError(f"{name} hold infinity")


def _require_array(arrays: dict[str, NDArray[Any]], name: str, kind: str, shape: tuple[int, ...]) -> None:
    if name not in arrays:
        raise ValueError(f"{name} are missing")
    found = arrays[name]
    if found.dtype.kind != kind or found.shape != shape:
        meant = f"{'integers' if kind == 'i' else 'floats'} of shape {list(shape)}"
        raise ValueError(f"{name} are {found.dtype} of shape {list(found.shape)}, the JSON says {meant}")


def _split(arrays: dict[str, NDArray[np.generic]], document: GoldenDocument) -> dict[str, GoldenTensors]:
    """Cut the flat arrays, which fit the JSON, into each prompt's part."""
    starts = arrays["starts"]
    text_ends = np.cumsum([prompt.output for prompt in document.prompts])
    start_ends = np.cumsum(starts)
    texts = np.split(arrays["texts"].astype(np.int32), text_ends[:-1])
    parts = {
        name: np.split(arrays[name], start_ends[:-1]) if name in arrays else None for name in ("proposals", "logprobs")
    }
    result = {}
    for index, prompt in enumerate(document.prompts):
        proposals, logprobs = (part[index] if part is not None else None for part in parts.values())
        result[prompt.id] = GoldenTensors(
            texts[index],
            None if proposals is None else proposals.astype(np.int32),
            None if logprobs is None else logprobs.astype(np.float32),
            arrays["sketches"][index].astype(np.float32) if "sketches" in arrays else None,
        )
    return result


def _remove_parts(folder: Path) -> None:
    """Remove what a record that was killed while it wrote has left half-written."""
    for part in folder.glob(".*.part"):
        part.unlink(missing_ok=True)


def pack_tensors(parts: Iterable[GoldenTensors]) -> bytes:
    """Return the safetensors bytes of all prompts' tensors, in the JSON's order."""
    rows = list(parts)
    arrays: dict[str, NDArray[np.generic]] = {
        "texts": np.concatenate([row.continuation for row in rows]).astype(np.int32)
    }
    proposals = [row.proposals for row in rows if row.proposals is not None]
    logprobs = [row.logprobs for row in rows if row.logprobs is not None]
    arrays["starts"] = np.array([0 if row.proposals is None else len(row.proposals) for row in rows], np.int32)
    if proposals:
        arrays["proposals"] = np.concatenate(proposals).astype(np.int32)
    if logprobs:
        arrays["logprobs"] = np.concatenate(logprobs).astype(np.float32)
    sketches = [row.sketches for row in rows if row.sketches is not None]
    if sketches:
        arrays["sketches"] = np.stack(sketches).astype(np.float32)
    return bytes(safetensors.numpy.save(arrays))


def tensors_name(data: bytes) -> str:
    """Return the file name of a golden's tensors."""
    return f"{hashlib.sha256(data).hexdigest()}.safetensors"


def save_golden(file: Path, document: GoldenDocument, tensors: bytes) -> None:
    """Write a golden in the order that a crash cannot break.

    Raises:
        InputError: The folder cannot be written.
    """
    with making(file.parent):
        try:
            write_atomically(file.parent / document.tensors, tensors)
            write_atomically(file, dump(document))
        finally:
            # After a failure too: tensors that no golden names are nobody's.
            _remove_unused(file.parent)
            _remove_parts(file.parent)


def unused_tensors(folder: Path) -> list[Path]:
    """Return the tensors that no golden of the folder names; none where one of its JSONs cannot be read."""
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
