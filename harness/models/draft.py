"""The EAGLE-3 draft as a torch module, with every flag that its public configs know.

One LLaMA layer whose attention reads `cat(input_layernorm(x), hidden_norm(g))`, 2H wide: `x` is the embedding of the
next token, `g` the fused target state (`fc` of the concatenated boundaries) on step 0 and the layer's own output on
later steps. Shapes below: B rows, T positions, H the draft's width.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.errors import InputError
from harness.models.precision import norm_dtype
from harness.models.rotary import Rotary, rotate
from harness.pair.draft_spec import DraftSpec

__all__ = ["DraftLayer", "Eagle3Draft", "RMSNorm"]


class RMSNorm(nn.Module):
    """Root mean square norm, computed in float32 at least and in float64 for float64 input."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Norm the last dimension of `x`."""
        y = x.to(norm_dtype(x.dtype))
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * y.to(x.dtype)


class DraftLayer(nn.Module):
    """The draft's one decoder layer, cut at its attention so that every decoder can bring its own cache and mask."""

    def __init__(self, spec: DraftSpec) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads, self.head_dim = spec.num_heads, spec.num_kv_heads, spec.head_dim
        self.norm_before_residual = spec.norm_before_residual
        width = spec.hidden_size
        self.input_layernorm = RMSNorm(width, spec.rms_norm_eps)
        self.hidden_norm = RMSNorm(width, spec.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(width, spec.rms_norm_eps)
        self.self_attn = nn.ModuleDict(
            {
                "q_proj": nn.Linear(2 * width, spec.num_heads * spec.head_dim, bias=spec.attention_bias),
                "k_proj": nn.Linear(2 * width, spec.num_kv_heads * spec.head_dim, bias=spec.attention_bias),
                "v_proj": nn.Linear(2 * width, spec.num_kv_heads * spec.head_dim, bias=spec.attention_bias),
                "o_proj": nn.Linear(spec.num_heads * spec.head_dim, width, bias=spec.attention_bias),
            }
        )
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(width, spec.intermediate_size, bias=spec.mlp_bias),
                "up_proj": nn.Linear(width, spec.intermediate_size, bias=spec.mlp_bias),
                "down_proj": nn.Linear(spec.intermediate_size, width, bias=spec.mlp_bias),
            }
        )
        self.activation = _activation(spec)

    def attention_input(self, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Return what attention reads, [B, T, 2H], and the residual, [B, T, H]."""
        normed = self.hidden_norm(g)
        return torch.cat((self.input_layernorm(x), normed), dim=-1), normed if self.norm_before_residual else g

    def queries(self, inputs: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        """Return queries [B, T, heads, d]."""
        return rotate(self.self_attn["q_proj"](inputs).unflatten(-1, (self.num_heads, self.head_dim)), rope)

    def keys_values(self, inputs: Tensor, rope: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return keys and values, each [B, T, kv heads, d]."""
        keys = self.self_attn["k_proj"](inputs).unflatten(-1, (self.num_kv_heads, self.head_dim))
        values = self.self_attn["v_proj"](inputs).unflatten(-1, (self.num_kv_heads, self.head_dim))
        return rotate(keys, rope), values

    def output(self, attended: Tensor, residual: Tensor) -> Tensor:
        """Return the layer's output [B, T, H] from attention's heads [B, T, heads, d]; before the final norm."""
        hidden: Tensor = residual + self.self_attn["o_proj"](attended.flatten(-2))
        x = self.post_attention_layernorm(hidden)
        mixed: Tensor = self.mlp["down_proj"](self.activation(self.mlp["gate_proj"](x)) * self.mlp["up_proj"](x))
        return hidden + mixed


class Eagle3Draft(nn.Module):
    """An EAGLE-3 draft.

    Args:
        spec: The draft's description.
        num_boundaries: How many target states `fc` reads, concatenated.

    Attributes:
        embed_tokens: Embedding table [vocab, H], the draft's own or the target's.
        d2t: int64 [draft vocab]; target id = draft id + d2t[draft id].
        t2d: bool [vocab]; which target tokens the draft can propose.
    """

    def __init__(self, spec: DraftSpec, num_boundaries: int = 3) -> None:
        super().__init__()
        self.spec = spec
        self.num_boundaries = num_boundaries
        width = spec.hidden_size
        fused = num_boundaries * spec.target_hidden_size
        self.embed_tokens = nn.Embedding(spec.vocab_size, width)
        if spec.use_aux_hidden_state:
            self.fc = nn.Linear(fused, width, bias=False)
        if spec.norm_before_fc:
            self.input_norm = RMSNorm(fused, spec.rms_norm_eps)
        if spec.fc_norm:
            self.fc_norm = nn.ModuleList(
                RMSNorm(spec.target_hidden_size, spec.rms_norm_eps) for _ in range(num_boundaries)
            )
        self.midlayer = DraftLayer(spec)
        self.norm = RMSNorm(width, spec.rms_norm_eps)
        self.lm_head = nn.Linear(width, spec.draft_vocab_size, bias=False)
        self.rotary = Rotary(spec)
        self.d2t: Tensor
        self.t2d: Tensor
        self.register_buffer("d2t", torch.zeros(spec.draft_vocab_size, dtype=torch.int64))
        self.register_buffer("t2d", torch.arange(spec.vocab_size) < spec.draft_vocab_size)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that the draft computes in."""
        return self.lm_head.weight.dtype

    def fuse(self, states: Tensor) -> Tensor:
        """Return `g` [..., H] from concatenated target states [..., num_boundaries * target width]."""
        if not self.spec.use_aux_hidden_state:
            return states
        if self.spec.norm_before_fc:
            states = self.input_norm(states)
        if self.spec.fc_norm:
            parts = states.split(self.spec.target_hidden_size, dim=-1)
            states = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], dim=-1)
        return cast(Tensor, self.fc(states))

    def recycle(self, hidden: Tensor) -> Tensor:
        """Return the next step's `g` from the layer's output."""
        return cast(Tensor, self.norm(hidden)) if self.spec.norm_output else hidden

    def step_positions(self, starts: Tensor, step: int) -> Tensor:
        """Return the rope positions of a step of chains whose step 0 is at `starts`: each step is one token further."""
        return starts + step

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits over the draft's vocabulary [..., draft vocab] from the layer's output."""
        return cast(Tensor, self.lm_head(self.norm(hidden)))

    def to_target(self, draft_ids: Tensor) -> Tensor:
        """Return the target ids of draft ids."""
        return draft_ids + self.d2t[draft_ids]

    def from_target(self) -> Tensor:
        """Return int64 [vocab]: each target id's draft id, -1 if the draft cannot propose it."""
        inverse = torch.full((self.spec.vocab_size,), -1, dtype=torch.int64, device=self.d2t.device)
        ids = torch.arange(self.spec.draft_vocab_size, device=self.d2t.device)
        inverse[self.to_target(ids)] = ids
        return inverse


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Grouped-query attention over a cache.

    Args:
        q: Queries [B, n, heads, d].
        k: Keys [B, kv heads, L, d].
        v: Values [B, kv heads, L, d].
        mask: bool, broadcastable to [B, heads, n, L], true for each key that is seen; every key is if `None`.

    Returns:
        [B, n, heads, d].
    """
    out = F.scaled_dot_product_attention(q.transpose(1, 2), k, v, attn_mask=mask, enable_gqa=q.shape[2] != k.shape[1])
    return out.transpose(1, 2)


def _activation(spec: DraftSpec) -> nn.Module:
    from transformers.activations import ACT2FN

    if spec.hidden_act not in ACT2FN:
        raise InputError(
            "unknown activation",
            file=spec.config_file,
            key="hidden_act",
            found=spec.hidden_act,
            expected="a name that transformers knows, such as silu",
        )
    return cast(nn.Module, ACT2FN[spec.hidden_act])
