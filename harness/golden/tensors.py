"""A golden's tensors: one safetensors file of flat arrays, named by its own hash, and each prompt's part of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from harness.counts.chains import UNKNOWN
from harness.counts.rounds import Limits
from harness.counts.stages import POSITIONS, WIDTH
from harness.errors import InputError
from harness.files import hash_file
from harness.golden.schema import GoldenDocument

__all__ = ["TENSORS_NAME", "GoldenTensors", "load_tensors", "pack_tensors", "tensors_class", "tensors_name"]

TENSORS_NAME = re.compile(r"[0-9a-f]{64}\.safetensors")
"""The names of tensor files: the SHA-256 of their content."""
# In the metadata of a tensors file, so that what a crash has left can be told from other people's files.
_CLASS_KEY = "acceptance-harness golden"


@dataclass(frozen=True)
class GoldenTensors:
    """The tensors of one prompt; `None` for those that the recording engine could not measure.

    Attributes:
        continuation: int32 [L]; the reference continuation.
        proposals: int32 [n, k]; the chain proposed at every position at which a round could start; a row of UNKNOWN
            where the recording engine did not start one.
        logprobs: float32 [n, k]; the draft's log-probability of the continuation's token, by step; NaN outside the
            position set.
        sketches: float32 [POSITIONS, stages, WIDTH]; random projections of every stage, see `harness.counts.stages`.
    """

    continuation: NDArray[np.int32]
    proposals: NDArray[np.int32] | None
    logprobs: NDArray[np.float32] | None
    sketches: NDArray[np.float32] | None


def load_tensors(file: Path, document: GoldenDocument) -> dict[str, GoldenTensors]:
    """Read the tensors that a golden's JSON names, by prompt.

    Raises:
        InputError: They cannot be read, are not the ones that were recorded, or do not fit the JSON.
    """
    advice = "restore it from version control, or remove the golden and record it again"
    try:
        found = hash_file(file)
    except OSError as error:
        raise InputError(
            "the golden's tensors cannot be read",
            file=file,
            found=error.strerror,
            expected="the file that the golden's JSON names under tensors",
            next_step=advice,
        ) from None
    if found != file.stem:
        raise InputError(
            "the golden's tensors are not the ones that were recorded",
            file=file,
            found=f"SHA-256 {found[:16]}…",
            expected=f"{file.stem[:16]}…, the file's name",
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
        ValueError: An array is missing, has another dtype or shape, or contains an impossible value.
    """
    outputs = [prompt.output for prompt in document.prompts]
    decode = document.decode
    _require_array(arrays, "texts", "i", (sum(outputs),))
    _require_array(arrays, "starts", "i", (len(outputs),))
    starts = [int(value) for value in arrays["starts"]]
    if {"proposals", "logprobs"} & arrays.keys():
        limits = Limits(decode["max_new_tokens"], decode["num_steps"], eos_ids=())
        # Its length alone determines where rounds could start, whether it ends in EOS or at the limit.
        meant = [limits.starts(range(output)) for output in outputs]
        if starts != meant:
            raise ValueError(f"starts are {starts}, but the JSON's outputs give {meant}")
    for name, kind in (("proposals", "i"), ("logprobs", "f")):
        if name in arrays:
            _require_array(arrays, name, kind, (sum(starts), decode["num_steps"]))
    if "sketches" in arrays:
        # The number of stages follows from the target. `require_comparable` checks it, after the target itself.
        stages = arrays["sketches"].shape[2] if arrays["sketches"].ndim == 4 else 1
        _require_array(arrays, "sketches", "f", (len(outputs), POSITIONS, stages, WIDTH))
    for name in ("texts", "proposals"):
        ids = arrays.get(name, np.zeros(0, np.int32))
        # A chain that the recording engine does not know is a row of UNKNOWN; texts are always known.
        known = ids[~(ids == UNKNOWN).all(axis=1)] if name == "proposals" and ids.ndim == 2 else ids
        outside = known[(known < 0) | (known >= document.target.vocab_size)]
        if len(outside):
            raise ValueError(
                f"{name} contain the token {outside[0]}, but the target's ids are 0 to {document.target.vocab_size - 1}"
            )
    for name in ("logprobs", "sketches"):
        if np.isinf(arrays.get(name, np.zeros(0, np.float32))).any():
            raise ValueError(f"{name} contain infinity")


def _require_array(arrays: dict[str, NDArray[Any]], name: str, kind: str, shape: tuple[int, ...]) -> None:
    if name not in arrays:
        raise ValueError(f"{name} are missing")
    found = arrays[name]
    if found.dtype.kind != kind or found.shape != shape:
        meant = f"{'integers' if kind == 'i' else 'floats'} of shape {list(shape)}"
        raise ValueError(f"{name} are {found.dtype} of shape {list(found.shape)}, but the JSON says {meant}")


def _split(arrays: dict[str, NDArray[np.generic]], document: GoldenDocument) -> dict[str, GoldenTensors]:
    """Cut the flat arrays into each prompt's part; `_require_fitting` has checked that they fit."""
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


def pack_tensors(parts: Iterable[GoldenTensors], golden_class: str | None = None) -> bytes:
    """Return the safetensors bytes of all prompts' tensors.

    Args:
        parts: One for each prompt, in the JSON's order.
        golden_class: The class that they are recorded for, which is written into the file.
    """
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
    return bytes(safetensors.numpy.save(arrays, None if golden_class is None else {_CLASS_KEY: golden_class}))


def tensors_class(file: Path) -> str | None:
    """Return the class that a tensors file was written for; `None` if it does not say, or is not the harness's."""
    try:
        with safetensors.safe_open(file, framework="numpy") as opened:
            return (opened.metadata() or {}).get(_CLASS_KEY)
    except (OSError, safetensors.SafetensorError):
        return None


def tensors_name(data: bytes) -> str:
    """Return the file name of a golden's tensors."""
    return f"{hashlib.sha256(data).hexdigest()}.safetensors"
