"""Data types by name, and float64 that really is float64.

transformers computes RMSNorm, rotary embeddings and some softmaxes in float32 whatever the model's dtype is, which in a
float64 model throws half of the digits away. `exact` keeps such casts from happening.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

__all__ = ["DTYPES", "MOST_DEVIATION", "deviation", "exact", "norm_dtype"]

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


MOST_DEVIATION = {torch.float64: 1e-3, torch.float32: 1e-3, torch.float16: 0.3, torch.bfloat16: 0.3}
"""By dtype, the greatest `deviation` between two ways to compute the same logits. Between caches of 50 tiny targets and
no cache, rounding makes it at most 1e-5 in float32, 0.003 in float16, 0.02 in bfloat16; a lost past, about 1."""


def deviation(found: Tensor, expected: Tensor) -> float:
    """Return by how much logits [B, T, V] differ from those expected, relative to the spread of these.

    A row counts as its median position does, since rounding may send a token to another expert; the worst row counts.
    """
    difference = (found.double() - expected.double()).square().mean(-1).sqrt()
    spread = expected.double().std().clamp(min=torch.finfo(torch.float32).tiny)
    return float((difference.median(-1).values / spread).max())


def norm_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which a norm or softmax over values of `dtype` is computed: at least float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


_CASTS = {torch.Tensor.to, torch.Tensor.type, torch.nn.functional.softmax, torch.softmax, torch.Tensor.softmax}


class _KeepFloat64(TorchFunctionMode):
    """Turns casts of float64 tensors to float32 into no casts, and `.float()` (of positions, say) into `.double()`."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.float:
            return args[0].double()
        if func in _CASTS and args and isinstance(args[0], torch.Tensor) and args[0].dtype == torch.float64:
            args = tuple(torch.float64 if value is torch.float32 else value for value in args)
            if kwargs.get("dtype") is torch.float32:
                kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


@contextlib.contextmanager
def exact(dtype: torch.dtype) -> Iterator[None]:
    """Compute a transformers model of `dtype` in that dtype throughout; does something for float64 only."""
    if dtype != torch.float64:
        yield
        return
    with _KeepFloat64():
        yield
