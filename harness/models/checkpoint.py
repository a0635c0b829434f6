"""Reading a checkpoint folder's tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from harness.errors import InputError, quote
from harness.files import is_file, read_json_object

__all__ = ["Header", "check_finite", "read_headers", "read_tensors", "weight_files"]


@dataclass(frozen=True)
class Header:
    """What a checkpoint says of a tensor before the tensor is read.

    Attributes:
        file: The file it is in.
        dtype: Its dtype, as safetensors names it ("F32", "BF16", "I64").
        shape: Its shape.
    """

    file: Path
    dtype: str
    shape: tuple[int, ...]


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a checkpoint, one or the shards of its index.

    Raises:
        InputError: There are none, or the index names one that is not there.
    """
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if is_file(single):
        return [single]
    if not is_file(index):
        raise InputError(
            "the checkpoint has no weights",
            file=folder,
            expected="model.safetensors or model.safetensors.index.json",
            next_step="convert other formats with safetensors' own tools",
        )
    weight_map = read_json_object(index, what="weights' index").get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InputError(
            "the index names no files",
            file=index,
            key="weight_map",
            found=quote(weight_map),
            expected="an object of tensor names and file names",
        )
    files = [folder / str(name) for name in sorted(set(map(str, weight_map.values())))]
    for file in files:
        if not is_file(file):
            raise InputError(
                "the index names a file that is not there",
                file=index,
                key="weight_map",
                found=file.name,
                expected=f"a file in {folder}",
                next_step="copy or download the checkpoint whole",
            )
    return files


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Read all tensors of a checkpoint.

    Raises:
        InputError: A file is missing or corrupt, or holds NaN or infinity.
    """
    return dict(_tensors(folder))


def _tensors(folder: Path) -> Iterator[tuple[str, Tensor]]:
    for file in weight_files(folder):
        with _opened(file) as stream:
            for name in stream.keys():  # noqa: SIM118 - not a mapping
                tensor = stream.get_tensor(name)
                check_finite(name, tensor, file)
                yield name, tensor


def read_headers(folder: Path) -> dict[str, Header]:
    """Return the headers of a checkpoint's tensors by name; no tensor is read.

    Raises:
        InputError: A file is missing or corrupt.
    """
    headers = {}
    for file in weight_files(folder):
        with _opened(file) as stream:
            for name in stream.keys():  # noqa: SIM118 - not a mapping
                part = stream.get_slice(name)
                headers[name] = Header(file, str(part.get_dtype()), tuple(part.get_shape()))
    return headers


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[Any]:
    try:
        with safetensors.safe_open(file, framework="pt") as stream:
            yield stream
    except (safetensors.SafetensorError, OSError) as error:
        raise InputError(
            "the weights cannot be read",
            file=file,
            found=str(error),
            expected="a safetensors file",
            next_step="copy or download the file again",
        ) from None


def check_finite(name: str, tensor: Tensor, file: Path) -> None:
    """Refuse NaN and infinity: a NaN logit gives an argmax that always agrees.

    Raises:
        InputError: The tensor holds such a value.
    """
    if not tensor.is_floating_point():
        return
    # torch knows no isfinite for floats of eight bits.
    finite = torch.isfinite(tensor.float() if tensor.element_size() == 1 else tensor)
    if not bool(finite.all()):
        bad = int((~finite).sum())
        raise InputError(
            "the tensor holds values that are not finite",
            file=file,
            key=name,
            found=f"{bad} of {tensor.numel()}",
            next_step="export the checkpoint again; training may have diverged or float16 overflowed",
        )
