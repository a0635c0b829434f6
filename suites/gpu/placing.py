"""Tiny targets on a device, and how far apart two tensors are."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import torch

from harness.models.target import Target
from harness.pair.target_spec import TargetSpec
from harness.testing import tiny_target

__all__ = ["placed", "relative_difference"]


@functools.lru_cache(maxsize=64)
def placed(architecture: str, layers: int, device: str, dtype: torch.dtype = torch.float32) -> Target:
    """Return a tiny target on a device, which equal calls share: it must not be changed."""
    # A copy, since `tiny_target` shares its models and moving a module moves it for all.
    model: Any = copy.deepcopy(tiny_target(architecture, layers=layers, dtype=dtype)).to(device)
    config = model.config
    spec = TargetSpec(Path(), architecture, layers, config.hidden_size, config.vocab_size, 256, eos_ids=())
    return Target(model, spec)


def relative_difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Return the greatest difference of two tensors' vectors along the last dimension, relative to their length."""
    one, other = ours.cpu().double(), theirs.cpu().double()
    return float(((one - other).norm(dim=-1) / other.norm(dim=-1).clamp(min=1e-12)).max())
