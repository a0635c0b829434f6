"""The target's cache for rounds that may be taken back: every key of the past, cropped to the tokens that were kept.

transformers' own `crop` takes a length to keep or, if negative, a number to drop; what 0 means, and what a layer with a
window does, has changed between releases (5.0 to 5.24). A layer with a window drops keys as it goes and cannot take a
token back. So the cache is made of plain layers, which keep everything, and the window is in the mask alone; and it is
cropped here, to a length.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

__all__ = ["growing_cache", "keep_first", "positions_of"]


def growing_cache() -> DynamicCache:
    """Return an empty cache that keeps the keys and values of every position, in every layer."""
    # Without the model's config, by which transformers would choose layers that keep their window only.
    return DynamicCache()


def positions_of(ids: Tensor, first: int) -> Tensor:
    """Return the positions [1, T] of ids [1, T] that go on at a position.

    Not every target that is not told them asks its cache: Bamba counts from 0 in each forward.
    """
    return torch.arange(first, first + ids.shape[1], device=ids.device)[None]


def keep_first(cache: DynamicCache, length: int) -> None:
    """Drop all positions of a cache but the first ones.

    Args:
        cache: A cache of `growing_cache`, filled by a model.
        length: How many positions stay.

    Raises:
        ValueError: A layer has fewer positions, so that something was dropped before.
    """
    for layer in cast(Any, cache).layers:
        if not layer.is_initialized:
            # It reads another layer's keys.
            continue
        held = layer.keys.shape[-2]
        if held < length:
            raise ValueError(f"the cache holds {held} positions, of which {length} should stay")
        layer.keys, layer.values = layer.keys[..., :length, :], layer.values[..., :length, :]
