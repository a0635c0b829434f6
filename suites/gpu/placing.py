"""Tiny targets on a device, and a stand-in for a device that is not the CPU."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from harness.models.target import Target
from harness.pair.target_spec import TargetSpec
from harness.testing import tiny_target

__all__ = ["elsewhere", "moved", "placed", "relative_difference"]

_Module = TypeVar("_Module", bound=nn.Module)


@functools.lru_cache(maxsize=64)
def placed(architecture: str, layers: int, device: str, dtype: torch.dtype = torch.float32) -> Target:
    """Return a tiny target on a device; one for each set of arguments, not to be changed."""
    # A copy: `tiny_target` shares its models, and moving a module moves it for everybody.
    model: Any = copy.deepcopy(tiny_target(architecture, layers=layers, dtype=dtype)).to(device)
    config = model.config
    spec = TargetSpec(Path(), architecture, layers, config.hidden_size, config.vocab_size, 256, eos_ids=())
    return Target(model, spec)


def relative_difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Return the greatest difference of two tensors, by the length of the vectors along the last dimension."""
    one, other = ours.cpu().double(), theirs.cpu().double()
    return float(((one - other).norm(dim=-1) / other.norm(dim=-1).clamp(min=1e-12)).max())


@contextlib.contextmanager
def elsewhere() -> Iterator[torch.device]:
    """Give a device that is not the CPU and computes nothing: a GPU's rules without a GPU.

    Inside, an operation on tensors of two devices raises, and so does whatever reads a value back. The first is wrong
    on CUDA, the second cannot be recorded in a CUDA graph.
    """
    with FakeTensorMode(), torch.no_grad():
        yield torch.device("meta")


def moved(module: _Module, device: torch.device) -> _Module:
    """Return a copy of a module with its weights and buffers on the device that `elsewhere` gives."""
    memo: dict[int, Any] = {}
    for tensor in (*module.parameters(), *module.buffers()):
        memo[id(tensor)] = (
            nn.Parameter(torch.empty(tensor.shape, dtype=tensor.dtype, device=device), requires_grad=False)
            if isinstance(tensor, nn.Parameter)
            else torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
        )
    return copy.deepcopy(module, memo)
