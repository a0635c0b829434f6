"""The target's cache for rounds that may be taken back: every key of the past, cropped to the tokens that were kept.

transformers' own `crop` takes a length to keep or, if negative, a number to drop; what 0 means, and what a layer with a
window does, has changed between releases (5.0 to 5.24). A layer with a window drops keys as it goes and cannot take a
token back. So the cache is made of plain layers, which keep everything, and the window is in the mask alone; and it is
cropped here, to a length.
"""

from __future__ import annotations

from typing import Any, cast

from transformers.cache_utils import DynamicCache

from harness.engines.reference.loaded import LoadedModels
from harness.errors import InputError

__all__ = ["growing_cache", "keep_first", "require_revocable"]

# Layers whose state is keys and values by position. Any other kind folds the past into a state that nothing undoes.
_BY_POSITION = {"full_attention", "sliding_attention", "chunked_attention"}


def growing_cache() -> DynamicCache:
    """Return an empty cache that keeps the keys and values of every position, in every layer."""
    # Without the model's config, by which transformers would choose layers that keep their window only.
    return DynamicCache()


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


def require_revocable(loaded: LoadedModels) -> None:
    """Refuse a target with layers that cannot take a rejected token back.

    Raises:
        InputError: It has linear attention or another recurrent layer.
    """
    config = loaded.target.config.get_text_config()
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ()
    others = sorted(set(kinds) - _BY_POSITION)
    if others:
        raise InputError(
            "the target has layers whose state cannot be taken back when a draft token is rejected",
            file=loaded.target.spec.path / "config.json",
            key="layer_types",
            found=", ".join(others),
            expected=f"for verify rounds: {', '.join(sorted(_BY_POSITION))}",
            next_step="measure it by replay, which needs no rounds: --engine reference",
        )
