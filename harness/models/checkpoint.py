"""Reading a checkpoint folder's tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from harness.errors import InputError, quote
from harness.files import is_file, read_json_object
from harness.pair.hub import WEIGHT_NAMES

__all__ = [
    "Header",
    "check_finite",
    "check_stored",
    "has_weights",
    "read_headers",
    "read_stored",
    "read_tensors",
    "weight_files",
]


@dataclass(frozen=True)
class Header:
    """What a checkpoint says about a tensor before the tensor is read.

    Attributes:
        file: The file it is in.
        dtype: Its dtype, as safetensors names it ("F32", "BF16", "I64").
        shape: The tensor's dimensions, as the file's header gives them.
    """

    file: Path
    dtype: str
    shape: tuple[int, ...]


def has_weights(folder: Path) -> bool:
    """Whether a folder holds weights at all; the index of weights that are elsewhere, as on a hub, does not count."""
    for name in WEIGHT_NAMES:
        files = _indexed(folder, name)
        # An index that names nothing is broken, which its reader reports.
        broken = not files and is_file(folder / f"{name}.index.json")
        if broken or any(is_file(file) for file in (folder / name, *files)):
            return True
    return False


def _indexed(folder: Path, name: str) -> list[Path]:
    """Return the files that an index of weights names; none if there is no index."""
    index = folder / f"{name}.index.json"
    weight_map = read_json_object(index, what="weights' index").get("weight_map") if is_file(index) else None
    if not isinstance(weight_map, dict):
        return []
    names = sorted({str(file) for file in weight_map.values()})
    for file in names:
        # Anything else would be read from outside of the checkpoint.
        if Path(file).is_absolute() or ".." in Path(file).parts:
            raise InputError(
                "the index names a file outside of the checkpoint",
                file=index,
                key="weight_map",
                found=file,
                expected=f"a file in {folder}",
                next_step="copy or download the checkpoint again",
            )
    return [folder / file for file in names]


def weight_files(folder: Path) -> list[Path]:
    """Return the files of a checkpoint's weights, one or the shards of its index; safetensors before pickles.

    Raises:
        InputError: The checkpoint does not have weights, or its index names a file that is not there.
    """
    for name in WEIGHT_NAMES:
        if is_file(folder / name):
            return [folder / name]
        if is_file(folder / f"{name}.index.json"):
            return _shards(folder, name)
    raise InputError(
        "the checkpoint does not have weights",
        file=folder,
        expected=" or ".join(f"{name} or {name}.index.json" for name in WEIGHT_NAMES),
        next_step="convert other formats with safetensors' own tools",
    )


def _shards(folder: Path, name: str) -> list[Path]:
    files, index = _indexed(folder, name), folder / f"{name}.index.json"
    if not files:
        raise InputError(
            "the index does not name any files",
            file=index,
            key="weight_map",
            found=quote(read_json_object(index, what="weights' index").get("weight_map")),
            expected="an object of tensor names and file names",
        )
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
        for name, tensor in _pickled(file, "cpu").items() if _is_pickle(file) else _stored(file):
            check_finite(name, tensor, file)
            yield name, tensor


def check_stored(folder: Path, names: Iterable[str]) -> None:
    """Refuse NaN and infinity in tensors that were left in the checkpoint, one at a time.

    Raises:
        InputError: One of the tensors holds such a value.
    """
    wanted = set(names)
    for name, tensor, file in _chosen(weight_files(folder) if wanted else (), wanted):
        check_finite(name, tensor, file)


def read_stored(files: Mapping[str, Path]) -> dict[str, Tensor]:
    """Read tensors as they are stored, each from its own file; `files` are those of their headers."""
    return {
        name: tensor
        for file in dict.fromkeys(files.values())
        for name, tensor, _ in _chosen([file], {name for name in files if files[name] == file})
    }


def _chosen(files: Iterable[Path], wanted: set[str]) -> Iterator[tuple[str, Tensor, Path]]:
    for file in files:
        for name, tensor in _pickled(file, "cpu").items() if _is_pickle(file) else _stored(file, wanted):
            if name in wanted:
                yield name, tensor, file


def _stored(file: Path, names: Collection[str] | None = None) -> Iterator[tuple[str, Tensor]]:
    with _opened(file) as stream:
        for name in stream.keys():  # noqa: SIM118 - not a mapping
            if names is None or name in names:
                yield name, stream.get_tensor(name)


def read_headers(folder: Path) -> dict[str, Header]:
    """Return the headers of a checkpoint's tensors by name; no tensor is read.

    Raises:
        InputError: A file is missing or corrupt.
    """
    headers = {}
    for file in weight_files(folder):
        if _is_pickle(file):
            for name, tensor in _pickled(file, "meta").items():
                headers[name] = Header(file, _NAMES.get(tensor.dtype, str(tensor.dtype)), tuple(tensor.shape))
            continue
        with _opened(file) as stream:
            for name in stream.keys():  # noqa: SIM118 - not a mapping
                part = stream.get_slice(name)
                headers[name] = Header(file, str(part.get_dtype()), tuple(part.get_shape()))
    return headers


# As safetensors names them.
_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.complex64: "C64",
    torch.complex128: "C128",
}


def _is_pickle(file: Path) -> bool:
    return file.suffix == ".bin"


def _pickled(file: Path, device: str) -> dict[str, Tensor]:
    """Read a pickle's tensors; nothing else in it is run."""
    try:
        found = torch.load(file, map_location=device, weights_only=True)
    except Exception as error:  # noqa: BLE001 - a damaged pickle fails in any way, and one that holds code is refused
        raise _unreadable(file, error, "a pickle of tensors only, as torch.save writes it") from None
    if not isinstance(found, dict) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise InputError(
            "the weights are not a state dict",
            file=file,
            found=type(found).__name__,
            expected="tensors by name",
            next_step="export the model's state_dict, best as safetensors",
        )
    return {str(name): tensor for name, tensor in found.items()}


def _unreadable(file: Path, error: Exception, expected: str) -> InputError:
    return InputError(
        "the weights cannot be read",
        file=file,
        found=str(error).split("\n")[0],
        expected=expected,
        next_step="copy or download the file again",
    )


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[Any]:
    try:
        with safetensors.safe_open(file, framework="pt") as stream:
            yield stream
    except (safetensors.SafetensorError, OSError) as error:
        raise _unreadable(file, error, "a safetensors file") from None


def check_finite(name: str, tensor: Tensor, file: Path) -> None:
    """Refuse NaN and infinity: a NaN logit gives an argmax that always agrees.

    Raises:
        InputError: The tensor holds such a value.
    """
    if not tensor.is_floating_point():
        return
    # torch does not compare 8-bit floats.
    values = tensor.float() if tensor.element_size() == 1 else tensor
    # Both ends are NaN if any value is. Nothing of the tensor's size is allocated, on a device that may be nearly full.
    if values.numel() and not all(bool(torch.isfinite(end)) for end in torch.aminmax(values)):
        bad = int((~torch.isfinite(values)).sum())
        raise InputError(
            "the tensor holds values that are not finite",
            file=file,
            key=name,
            found=f"{bad} of {tensor.numel()}",
            next_step="export the checkpoint again; training may have diverged or float16 overflowed",
        )
