"""All positions at once: the chain that the draft would propose had a verify round started at each position.

This is the attention pattern of training-time test. Step 0 reads, at position j, the embedding of token j+1 and the
fused target state of position j, sees the step-0 keys of positions up to j, and predicts token j+2. Step s sees those
same keys and its own chain's keys of steps 1 to s, at rope position j+s; its `g` is the chain's previous output. The
draft's cache is extended with target states after each verification, so no chain ever sees another chain's keys.

Everything is differentiable: the fixtures' drafts are trained through this class, and replay runs it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from harness.models.draft import Eagle3Draft
from harness.models.precision import norm_dtype

__all__ = ["ParallelChains"]


class ParallelChains:
    """Chains that start at many positions of a batch of right-padded rows.

    Args:
        draft: The loaded draft that takes the steps.
        next_tokens: int64 [B, T]; token j+1 at column j.
        states: Concatenated boundaries [B, T, num_boundaries * target width] at positions 0 … T-1.
        starts: int64 [B, n]: the positions j at which chains start; all T positions if `None`. Padding may
            repeat any valid position.

    Attributes:
        hidden: Layer output of the latest step [B, n, H], before the final norm.
    """

    def __init__(self, draft: Eagle3Draft, next_tokens: Tensor, states: Tensor, starts: Tensor | None = None) -> None:
        self.draft = draft
        layer = draft.midlayer
        batch, length = next_tokens.shape
        positions = torch.arange(length, device=next_tokens.device)
        self.starts = positions.expand(batch, length) if starts is None else starts
        # Step 0 is run at every position, not only at the starts: a chain sees the step-0 keys of all positions before
        # its own, as the draft's cache holds them after prefill and verification.
        inputs, residual = layer.attention_input(draft.embed_tokens(next_tokens), draft.fuse(states))
        rope = tuple(part.expand(batch, -1, -1) for part in draft.rotary.table(positions, inputs.dtype))
        keys, values = layer.keys_values(inputs, (rope[0], rope[1]))
        self._keys0 = keys.transpose(1, 2)
        self._values0 = values.transpose(1, 2)
        # [B, 1, 1, n, T]: a chain sees the step-0 keys up to its own start.
        self._mask0 = (positions <= self.starts[..., None])[:, None, None]
        self._own: list[tuple[Tensor, Tensor]] = []
        self._step = 0
        if starts is not None:
            inputs, residual = _rows(inputs, starts), _rows(residual, starts)
        self.hidden = self._finish(inputs, residual)

    def step(self, tokens: Tensor) -> Tensor:
        """Run the next step.

        Args:
            tokens: int64 [B, n], target ids: for the chain at j, the token at j+1+s, drafted or known.

        Returns:
            Layer output [B, n, H], also kept as `hidden`.
        """
        self._step += 1
        inputs, residual = self.draft.midlayer.attention_input(
            self.draft.embed_tokens(tokens), self.draft.recycle(self.hidden)
        )
        # Step s of the chain at j is the token at position j+s, as in a sequential decoder.
        rope = self._rope(inputs.dtype)
        keys, values = self.draft.midlayer.keys_values(inputs, rope)
        self._own.append((keys.transpose(1, 2), values.transpose(1, 2)))
        self.hidden = self._finish(inputs, residual)
        return self.hidden

    def only(self, index: Tensor) -> ParallelChains:
        """Return chains at step 0 that start at some of the same positions and share the step-0 keys.

        Args:
            index: int64 [B, m]: which of the n chains, in each row.
        """
        assert self._step == 0
        other = object.__new__(ParallelChains)
        other.__dict__.update(self.__dict__)
        other.starts = torch.gather(self.starts, 1, index)
        other.hidden = _rows(self.hidden, index)
        other._mask0 = torch.gather(
            self._mask0, 3, index[:, None, None, :, None].expand(*self._mask0.shape[:3], -1, self._mask0.shape[4])
        )
        other._own = []
        return other

    def _finish(self, inputs: Tensor, residual: Tensor) -> Tensor:
        queries = self.draft.midlayer.queries(inputs, self._rope(inputs.dtype))
        return self.draft.midlayer.output(self._attend(queries), residual)

    def _rope(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        return self.draft.rotary.table(self.draft.step_positions(self.starts, self._step), dtype)

    def _attend(self, queries: Tensor) -> Tensor:
        """Attention of [B, n, heads, d] over the shared step-0 keys and each chain's own."""
        batch, count, heads, width = queries.shape
        kv_heads = self._keys0.shape[1]
        q = queries.transpose(1, 2).reshape(batch, kv_heads, heads // kv_heads, count, width) * width**-0.5
        # Two products instead of one over concatenated keys: the step-0 keys are shared by all chains of a row, and a
        # copy of them for each chain would take n times the memory.
        shared = (q.flatten(2, 3) @ self._keys0.transpose(-1, -2)).unflatten(2, (heads // kv_heads, count))
        scores = [shared.masked_fill(~self._mask0, float("-inf"))]
        scores += [(q * keys[:, :, None]).sum(-1, keepdim=True) for keys, _ in self._own]
        # One softmax over both: a chain's attention is a single distribution.
        joint = torch.cat(scores, dim=-1)
        weights = torch.softmax(joint, dim=-1, dtype=norm_dtype(joint.dtype)).to(joint.dtype)
        length = self._keys0.shape[2]
        mixed: Tensor = (weights[..., :length].flatten(2, 3) @ self._values0).unflatten(2, (heads // kv_heads, count))
        for index, (_, values) in enumerate(self._own):
            mixed = mixed + weights[..., length + index, None] * values[:, :, None]
        return mixed.reshape(batch, heads, count, width).transpose(1, 2)


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """Gather positions `index` [B, n] of `x` [B, T, W]."""
    return torch.gather(x, 1, index[..., None].expand(-1, -1, x.shape[-1]))
