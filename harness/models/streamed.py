"""A loaded model that computes in another dtype or with another attention kernel, without a second copy of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import nn

from harness.models.placement import is_offloaded

__all__ = ["computing_in", "other_attention"]

_KERNELS = {"sdpa": "eager", "eager": "sdpa"}


@contextlib.contextmanager
def computing_in(model: nn.Module, dtype: torch.dtype) -> Iterator[bool]:
    """Have a model compute in another dtype: the weights of each module are cast while that module runs, then dropped.

    Args:
        model: A transformers model of one floating-point dtype.
        dtype: The dtype to compute in.

    Yields:
        Whether that is possible. It is not if weights are offloaded, or if a module does not compute in their dtype.
    """
    owners = [module for module in model.modules() if any(True for _ in module.parameters(recurse=False))]
    if any(map(is_offloaded, owners)) or any(
        not parameter.is_floating_point() or parameter.dtype.itemsize < 2
        for module in owners
        for parameter in module.parameters(recurse=False)
    ):
        yield False
        return
    kept: dict[nn.Module, dict[str, nn.Parameter | None]] = {}

    def cast_weights(module: nn.Module, _arguments: Any) -> None:
        kept[module] = dict(module._parameters)
        for name, parameter in kept[module].items():
            if parameter is not None:
                module._parameters[name] = nn.Parameter(parameter.to(dtype), requires_grad=False)

    def restore(module: nn.Module, *_arguments: Any) -> None:
        module._parameters.update(kept.pop(module, {}))

    handles = [module.register_forward_pre_hook(cast_weights) for module in owners]
    # Also after an error: a module that kept cast weights would stay wrong for whoever uses the model next.
    handles += [module.register_forward_hook(restore, always_call=True) for module in owners]
    try:
        yield True
    finally:
        for handle in handles:
            handle.remove()
        for module in list(kept):
            restore(module)


@contextlib.contextmanager
def other_attention(model: nn.Module) -> Iterator[str | None]:
    """Switch a model to another attention kernel in place.

    Args:
        model: A transformers model.

    Yields:
        The kernel's name, such as `eager`; `None` if the model has only one.
    """
    known = cast(Any, model)
    before = getattr(known.config, "_attn_implementation", None)
    other = _KERNELS.get(str(before))
    try:
        if other is not None:
            known.set_attn_implementation(other)
    except (AttributeError, ImportError, ValueError):
        other = None
    try:
        yield other
    finally:
        if other is not None:
            known.set_attn_implementation(before)
