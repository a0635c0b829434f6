"""Identifies the boundary of a captured tensor, by transformers' states of the same weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness.models.capture import BoundaryCapture
from harness.pair.quiet import quiet

__all__ = ["STATE_TOLERANCE", "asked_tokens", "boundary_states", "distance", "matching_boundary"]

_TOKENS = 11
STATE_TOLERANCE = 1e-4
"""Largest difference of a captured state from a boundary's, relative to its largest value, in float32."""


def matching_boundary(slot: Tensor, states: Sequence[Tensor]) -> int | None:
    """Return the boundary whose state a captured tensor is, `None` if it is not any boundary's.

    Args:
        slot: The captured tensor, [T, H].
        states: The state [T, H] at each boundary, 0 to N.
    """
    for boundary, state in enumerate(states):
        if distance(slot, state) <= STATE_TOLERANCE:
            return boundary
    return None


def distance(one: Tensor, other: Tensor) -> float:
    """Return the largest difference of two states, relative to the other's largest value; NaN if either has NaN."""
    return float((one - other).abs().max() / other.abs().max())


@torch.no_grad()
def boundary_states(folder: Path, tokens: Sequence[int]) -> tuple[list[Tensor], Tensor]:
    """Return transformers' state [T, H] at each boundary of the same weights, and the one after the final norm.

    Raises:
        ValueError: Two boundaries' states are so similar that a captured state could be either.
    """
    from transformers import AutoModelForCausalLM

    with quiet():
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False).eval()
    # `.model`, since get_decoder() does not return the decoder of every language model.
    decoder = model.model
    layers = len(decoder.layers)
    with BoundaryCapture(decoder, layers, range(layers + 1)) as captured:
        last = decoder(torch.tensor([list(tokens)])).last_hidden_state[0]
        states = [captured.state(boundary)[0] for boundary in range(layers + 1)]
    for boundary, state in enumerate(states):
        if any(distance(state, other) < 100 * STATE_TOLERANCE for other in states[:boundary]):
            raise ValueError(f"the states of boundary {boundary} and a lower one are too similar to be told apart")
    return states, last


def asked_tokens() -> tuple[int, ...]:
    """Return the token ids that every class is given."""
    return tuple(torch.randint(3, 60, (_TOKENS,), generator=torch.Generator().manual_seed(0)).tolist())
