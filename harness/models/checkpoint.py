"""Reading a checkpoint folder's tensors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import safetensors
import torch
from torch import Tensor

from harness.errors import InputError
from harness.files import read_json_object

__all__ = ["check_finite", "read_tensors", "weight_files"]


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a checkpoint, one or the shards of its index.

    Raises:
        InputError: There are none, or the index names one that is not there.
    """
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        return [single]
    if not index.is_file():
        raise InputError(
            "the checkpoint has no weights",
            file=folder,
            expected="model.safetensors or model.safetensors.index.json",
            next_step="convert other formats with safetensors' own tools",
        )
    weight_map = read_json_object(index, what="weights' index").get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InputError("the index names no files", file=index, key="weight_map", found=repr(weight_map))
    files = [folder / str(name) for name in sorted(set(map(str, weight_map.values())))]
    for file in files:
        if not file.is_file():
            raise InputError("the index names a file that is not there", file=index, key="weight_map", found=file.name)
    return files


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Read all tensors of a checkpoint.

    Raises:
        InputError: A file is missing or corrupt, or holds NaN or infinity.
    """
    return dict(_tensors(folder))


def _tensors(folder: Path) -> Iterator[tuple[str, Tensor]]:
    for file in weight_files(folder):
        try:
            with safetensors.safe_open(file, framework="pt") as stream:
                for name in stream.keys():  # noqa: SIM118 - not a mapping
                    tensor = stream.get_tensor(name)
                    check_finite(name, tensor, file)
                    yield name, tensor
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
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        bad = int((~torch.isfinite(tensor)).sum())
        raise InputError(
            "the tensor holds values that are not finite",
            file=file,
            key=name,
            found=f"{bad} of {tensor.numel()}",
            next_step="export the checkpoint again; training may have diverged or float16 overflowed",
        )
