"""A stand-in for a GPU: it computes on the CPU and enforces the rules of another device.

Its tensors say that they are on `DEVICE`, and do not mix with those of the CPU, so that a tensor built on the CPU by
mistake is found on a machine without a GPU. Kernels, streams and rounding are the CPU's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Self

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

__all__ = ["DEVICE", "MixedDevicesError", "ReadBackError", "StandIn"]

# The one of torch's device types that nothing else here uses and that torch lets a wrapped tensor claim.
DEVICE = "meta"
_COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
# CUDA accepts indices from the CPU, but neither masks nor values.
_INDEXING = (torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default, torch.ops.aten._index_put_impl_.default)


class MixedDevicesError(RuntimeError):
    """An operation mixes tensors of the device with tensors of the CPU."""


class ReadBackError(RuntimeError):
    """A value was read back while nothing may be."""


class _Placed(Tensor):
    """A tensor that says it is on the device; `held` has its values."""

    held: Tensor

    @staticmethod
    def __new__(cls: type[_Placed], held: Tensor) -> _Placed:
        made: _Placed = Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), dtype=held.dtype, device=torch.device(DEVICE)
        )
        made.held = held
        return made

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"{self.held!r} on the stand-in"

    def tolist(self) -> Any:
        """Return the values as lists, which torch refuses for a subclass."""
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise MixedDevicesError(f"{func}: a tensor of the stand-in is used outside of it")


class _WithValues(TorchFunctionMode):
    """Lets `torch.tensor` keep its values, which torch drops for this device type."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        device = named.get("device")
        if func is torch.tensor and device is not None and torch.device(device).type == DEVICE:
            return func(*args, **named | {"device": "cpu"}).to(DEVICE)
        return func(*args, **named)


class StandIn(TorchDispatchMode):
    """While it is active, tensors can be made on `DEVICE` and moved to it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._readable = True
        self._overwrites = False
        self._values = _WithValues()

    def __enter__(self) -> Self:
        # A parameter's values cannot be replaced in a wrapped tensor: a module that is moved or cast gets new ones.
        self._overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        self._values.__enter__()  # type: ignore[no-untyped-call]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        self._values.__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        torch.__future__.set_overwrite_module_params_on_conversion(self._overwrites)

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Stay active inside an operation."""
        super().__enter__()  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            super().__exit__(None, None, None)  # type: ignore[no-untyped-call]

    @contextlib.contextmanager
    def unread(self) -> Iterator[None]:
        """Refuse operations that read a value back, which no CUDA graph can record."""
        self._readable = False
        try:
            yield
        finally:
            self._readable = True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        # In inference mode, composite operations are not decomposed before they arrive here.
        with self.again():
            result = func.decompose(*args, **named)
        if result is not NotImplemented:
            return result
        tensors = [value for value in tree_flatten((args, named))[0] if isinstance(value, Tensor)]
        placed = [tensor for tensor in tensors if isinstance(tensor, _Placed)]
        asked = named.get("device")
        if func not in _COPIES:
            self._require_one_device(func, tensors, placed)
        leaves = placed and (func is torch.ops.aten._local_scalar_dense.default or _to_cpu(func, asked, args))
        if leaves and not self._readable:
            raise ReadBackError(f"{func} reads a value back")
        if asked is not None:
            asked = torch.device(asked)
            named["device"] = torch.device("cpu")
        result = func(*_unwrapped(args), **_unwrapped(named))
        if func._schema.is_mutable and args and result is not None:
            # An operation in place returns the same tensor.
            return args[0] if isinstance(args[0], Tensor) else result
        if asked.type == DEVICE if asked is not None else bool(placed):
            return tree_map(lambda value: _Placed(value) if isinstance(value, Tensor) else value, result)
        return result

    @staticmethod
    def _require_one_device(func: Any, tensors: list[Tensor], placed: list[_Placed]) -> None:
        others = [tensor for tensor in tensors if not isinstance(tensor, _Placed) and tensor.dim() > 0]
        if func in _INDEXING:
            others = [tensor for tensor in others if tensor.dtype not in (torch.int64, torch.int32)]
        if placed and others:
            raise MixedDevicesError(f"{func}: expected all tensors to be on the same device, found {DEVICE} and cpu")


def _to_cpu(func: Any, asked: Any, args: tuple[Any, ...]) -> bool:
    if func is torch.ops.aten.copy_.default:
        return not isinstance(args[0], _Placed)
    return func is torch.ops.aten._to_copy.default and asked is not None and torch.device(asked).type == "cpu"


def _unwrapped(values: Any) -> Any:
    return tree_map(lambda value: value.held if isinstance(value, _Placed) else value, values)
