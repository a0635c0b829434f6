"""Sketches of states at sampled positions, taken while a forward runs; nothing else of the states is kept."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

from harness.counts.stages import signs
from harness.models.capture import BoundaryWatch
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


class BoundarySketches(BoundaryWatch):
    """Sketches every boundary of a target during a forward.

    Args:
        model: A transformers causal language model.
        num_layers: Its number of decoder blocks, N.
        positions: int64 [B, p]: where.
    """

    def __init__(self, model: nn.Module, num_layers: int, positions: Tensor) -> None:
        super().__init__(model, num_layers, range(num_layers + 1))
        self.positions = positions

    def stacked(self) -> Tensor:
        """Return the latest forward's sketches: [B, p, N+1, WIDTH]."""
        return torch.stack([self._kept[boundary] for boundary in self.boundaries], dim=2)

    def _keep(self, boundary: int, state: Tensor) -> None:
        # Where the state is, since a sketch is far smaller to move.
        self._kept[boundary] = sketch(state.detach(), self.positions.to(state.device)).to(self.positions.device)


def sketch_parts(states: Tensor, positions: Tensor, parts: int) -> Tensor:
    """Return the sketches of a concatenation's parts: [B, p, parts, WIDTH] of states [B, T, parts * W]."""
    return torch.stack([sketch(part, positions) for part in states.chunk(parts, dim=-1)], dim=2)
