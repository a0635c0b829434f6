"""Which boundary's state a captured tensor is: transformers' states of the same weights, and how alike two are."""

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
"""How far a captured state may be from a boundary's, relative to its largest value: float32, two implementations."""


def matching_boundary(slot: Tensor, states: Sequence[Tensor]) -> int | None:
    """Return the boundary whose state a captured tensor is, `None` where it is none's.

    Args:
        slot: What was captured, [T, H].
        states: The state [T, H] at each boundary, 0 to N.
    """
    for boundary, state in enumerate(states):
        if distance(slot, state) <= STATE_TOLERANCE:
            return boundary
    return None


def distance(one: Tensor, other: Tensor) -> float:
    """Return the largest difference of two states, relative to the other's largest value; NaN where one has NaN."""
    return float((one - other).abs().max() / other.abs().max())


@torch.no_grad()
def boundary_states(folder: Path, tokens: Sequence[int]) -> tuple[list[Tensor], Tensor]:
    """Return transformers' state [T, H] at each boundary of the same weights, and the one after the final norm.

    Raises:
        ValueError: Two boundaries' states are too alike to tell which of them was captured.
    """
    from transformers import AutoModelForCausalLM

    with quiet():
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    # Not by the language model itself: not every one of them answers with its decoder.
    decoder = model.model
    layers = len(decoder.layers)
    with BoundaryCapture(decoder, layers, range(layers + 1)) as captured:
        last = decoder(torch.tensor([list(tokens)])).last_hidden_state[0]
        states = [captured.state(boundary)[0] for boundary in range(layers + 1)]
    for boundary, state in enumerate(states):
        if any(distance(state, other) < 100 * STATE_TOLERANCE for other in states[:boundary]):
            raise ValueError(f"the state of boundary {boundary} and a lower one are too alike to be told apart")
    return states, last


def asked_tokens() -> tuple[int, ...]:
    """Return the token ids that every class is given."""
    return tuple(torch.randint(3, 60, (_TOKENS,), generator=torch.Generator().manual_seed(0)).tolist())
