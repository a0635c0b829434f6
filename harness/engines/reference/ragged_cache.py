"""A transformers cache in which every row of a batch has its own length: the slot of a key is its position.

A batch of verify rounds accepts another number of tokens in each row. Writing each key at its position's slot makes
dropping rejected keys free (the next round overwrites them) and lets one mask say what is seen.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

__all__ = ["RaggedCache"]


class _RaggedLayer(DynamicLayer):
    keys: Tensor
    values: Tensor

    def __init__(self, cache: RaggedCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._cache = cache

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            batch, heads, _length, width = key_states.shape
            self.keys = key_states.new_zeros(batch, heads, self._cache.capacity, width)
            self.values = value_states.new_zeros(batch, heads, self._cache.capacity, value_states.shape[-1])
        # A target may be spread over devices, and each layer's keys are where the layer is.
        rows, slots = (index.to(key_states.device) for index in (self._cache.rows, self._cache.slots))
        seen = self._cache.seen
        self.keys[rows, :, slots] = key_states.transpose(1, 2)
        self.values[rows, :, slots] = value_states.transpose(1, 2)
        return self.keys[:, :, :seen], self.values[:, :, :seen]


class RaggedCache(Cache):
    """A cache for models whose every layer attends to the whole past.

    Args:
        num_layers: Decoder blocks.
        batch: Rows.
        capacity: Longest row, in tokens.
    """

    def __init__(self, num_layers: int, batch: int, capacity: int) -> None:
        super().__init__(layers=[_RaggedLayer(self) for _ in range(num_layers)])
        self.capacity = capacity
        self.rows = torch.arange(batch)[:, None]
        self.slots = torch.zeros(batch, 0, dtype=torch.int64)
        self.seen = 0

    def at(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        """Choose where the next forward writes.

        Args:
            positions: int64 [B, T]: each token's position.
            dtype: The model's dtype.

        Returns:
            The additive mask [B, 1, T, L] for that forward: a token sees the slots up to its own.
        """
        self.slots = positions
        self.rows = self.rows.to(positions.device)
        self.seen = int(positions.max()) + 1
        slots = torch.arange(self.seen, device=positions.device)
        hidden = slots > positions[..., None]
        mask = torch.zeros(hidden.shape, dtype=dtype, device=positions.device)
        return mask.masked_fill(hidden, torch.finfo(dtype).min)[:, None]
