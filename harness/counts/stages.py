"""The stages that states pass from the target to the draft's proposals, in order, and where they are sampled.

A golden keeps a *sketch* of each stage, a random projection of its vector to a few numbers, so that two runs can be
compared stage by stage without keeping the vectors. (Johnson and Lindenstrauss, 1984; random signs: Achlioptas, 2003.)
The signs must be the same on every machine and with every version of NumPy. So they come from NumPy's legacy generator,
whose stream is frozen.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["POSITIONS", "WIDTH", "sample_at", "sample_positions", "signs", "stage_names"]

POSITIONS = 3
"""How many positions are sampled in each prompt's text."""
WIDTH = 8
"""How many numbers a sketch has."""
_SEED = 20_240_517


def stage_names(num_layers: int, num_slots: int, num_steps: int) -> tuple[str, ...]:
    """Return the stages in the order in which states pass them.

    `boundary 0` is the embedding and `boundary k` the aux hidden state after decoder block k; `slot i` the i-th part of
    the concatenation that the draft was given; `fc` the output of its first layer; `step s` its logits for the s-th
    token of a chain, from 1, with the reference continuation's tokens as inputs.
    """
    return (
        *(f"boundary {boundary}" for boundary in range(num_layers + 1)),
        *(f"slot {slot}" for slot in range(num_slots)),
        "fc",
        *(f"step {step + 1}" for step in range(num_steps)),
    )


def sample_positions(starts: int) -> tuple[int, ...]:
    """Return which of the `starts` positions at which a round could start are sampled: the first, middle and last."""
    return tuple(round(index * (starts - 1) / (POSITIONS - 1)) for index in range(POSITIONS)) if starts else ()


def sample_at(prompt_tokens: int, starts: int) -> tuple[int, ...]:
    """Return the sampled positions of a prompt and its text together: those of the last token known to each round.

    Args:
        prompt_tokens: The prompt's length.
        starts: How many positions there are at which a round could start; at least the first is sampled.
    """
    return tuple(prompt_tokens - 1 + start for start in sample_positions(max(1, starts)))


def signs(width: int) -> NDArray[np.float32]:
    """Return the projection for vectors of a width, float32 [width, WIDTH]: signs over the root of the width."""
    generator = np.random.RandomState(_SEED)
    drawn = np.asarray(generator.randint(0, 2, (width, WIDTH)), np.float64)
    return np.asarray((drawn * 2 - 1) / np.sqrt(width), np.float32)
