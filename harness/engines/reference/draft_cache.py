"""The draft's key/value cache: a key's slot is its position, so rejected keys are simply written over."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.models.draft import Eagle3Draft, attend

__all__ = ["DraftCache"]


class DraftCache:
    """Keys and values of the draft's one layer.

    Args:
        draft: The draft whose keys and values are kept; gives their shape, dtype and device.
        batch: Rows.
        capacity: Longest row, in tokens.
    """

    def __init__(self, draft: Eagle3Draft, batch: int, capacity: int) -> None:
        self.draft = draft
        spec, device = draft.spec, draft.d2t.device
        shape = (batch, spec.num_kv_heads, capacity, spec.head_dim)
        self._keys = torch.zeros(shape, dtype=draft.dtype, device=device)
        self._values = torch.zeros(shape, dtype=draft.dtype, device=device)
        self._slots = torch.arange(capacity, device=device)
        self._rows = torch.arange(batch, device=device)[:, None]

    def run(self, tokens: Tensor, g: Tensor, first: int) -> Tensor:
        """Run the layer on consecutive positions that are the same in every row.

        Args:
            tokens: int64 [B, T]: the token after each position.
            g: Fused states or recycled outputs [B, T, H].
            first: The first position.

        Returns:
            Layer output [B, T, H].
        """
        layer, length = self.draft.midlayer, tokens.shape[1]
        end = first + length
        inputs, residual = layer.attention_input(self.draft.embed_tokens(tokens), g)
        cos, sin = self.draft.rotary.table(self._slots[first:end], inputs.dtype)
        rope = (cos[None], sin[None])
        keys, values = layer.keys_values(inputs, rope)
        self._keys[:, :, first:end] = keys.transpose(1, 2)
        self._values[:, :, first:end] = values.transpose(1, 2)
        # A single query sees everything in the cache up to its own position, so it needs no mask.
        mask = None if length == 1 else self._slots[:end] <= self._slots[first:end, None]
        attended = attend(layer.queries(inputs, rope), self._keys[:, :, :end], self._values[:, :, :end], mask)
        return layer.output(attended, residual)

    def run_ragged(self, tokens: Tensor, g: Tensor, positions: Tensor) -> Tensor:
        """Run the layer on positions that differ by row.

        Args:
            tokens: int64 [B, T]: the token after each position.
            g: Fused states or recycled outputs [B, T, H].
            positions: int64 [B, T].

        Returns:
            Layer output [B, T, H].
        """
        layer = self.draft.midlayer
        end = int(positions.max()) + 1
        inputs, residual = layer.attention_input(self.draft.embed_tokens(tokens), g)
        rope = self.draft.rotary.table(positions, inputs.dtype)
        keys, values = layer.keys_values(inputs, rope)
        # Keys of rejected tokens are still in the cache at later positions. They are written over before any query at
        # or past those positions runs, and the mask hides them until then.
        self._keys[self._rows, :, positions] = keys
        self._values[self._rows, :, positions] = values
        mask = (self._slots[:end] <= positions[..., None])[:, None]
        attended = attend(layer.queries(inputs, rope), self._keys[:, :, :end], self._values[:, :, :end], mask)
        return layer.output(attended, residual)
