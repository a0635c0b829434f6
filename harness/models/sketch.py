"""Sketches of states at sampled positions, taken while a forward runs; nothing else of the states is kept."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import TracebackType

import torch
from torch import Tensor, nn

from harness.facts.stages import signs
from harness.models.capture import watch_boundaries
from harness.models.precision import norm_dtype

__all__ = ["BoundarySketches", "sketch", "sketch_parts"]


@functools.lru_cache(maxsize=32)
def _projection(width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.from_numpy(signs(width)).to(device=device, dtype=dtype)


def sketch(states: Tensor, positions: Tensor) -> Tensor:
    """Return the sketches of states [B, T, W] at positions int64 [B, p]: [B, p, WIDTH], in float32 or the states' own.

    The wider of both, since half-precision sums of many values would be noise.
    """
    chosen = torch.gather(states, 1, positions[..., None].expand(-1, -1, states.shape[-1]))
    dtype = norm_dtype(states.dtype)
    return chosen.to(dtype) @ _projection(states.shape[-1], dtype, states.device)


class BoundarySketches:
    """Context manager that sketches every boundary of a target during a forward.

    Args:
        model: A transformers causal language model.
        num_layers: Its number of decoder blocks, N.
        positions: int64 [B, p]: where.
    """

    def __init__(self, model: nn.Module, num_layers: int, positions: Tensor) -> None:
        self.positions = positions
        self._sketches: dict[int, Tensor] = {}
        self._watch = (model, num_layers)
        self._handles: Sequence[torch.utils.hooks.RemovableHandle] = ()

    def __enter__(self) -> BoundarySketches:
        model, num_layers = self._watch
        self._handles = watch_boundaries(model, num_layers, range(num_layers + 1), self._keep)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()

    def stacked(self) -> Tensor:
        """Return the latest forward's sketches: [B, p, N+1, WIDTH]."""
        return torch.stack([self._sketches[boundary] for boundary in sorted(self._sketches)], dim=2)

    def _keep(self, boundary: int, state: Tensor) -> None:
        self._sketches[boundary] = sketch(state.detach(), self.positions)


def sketch_parts(states: Tensor, positions: Tensor, parts: int) -> Tensor:
    """Return the sketches of a concatenation's parts: [B, p, parts, WIDTH] of states [B, T, parts * W]."""
    return torch.stack([sketch(part, positions) for part in states.chunk(parts, dim=-1)], dim=2)
