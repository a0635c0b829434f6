"""Ways of serving a pair that must not change the counts, and over how many GPUs a pair can be split."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from harness.pair.pair import Pair

__all__ = ["BUILT_IN", "WAYS", "arguments_of", "ranks_for"]

# The heads of the built-in pair are 32 wide, which not every attention kernel for CUDA supports, but Triton's does.
# bfloat16 is what production serves in, and not every kernel of SGLang supports float32.
BUILT_IN: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "cpu": ("float32", {}),
    "cuda": ("bfloat16", {"attention_backend": "triton"}),
}
"""By device: the dtype and the engine arguments with which SGLang serves the built-in pair."""

_SWITCHES = {
    "graphs": "disable_cuda_graph",
    "overlap": "disable_overlap_schedule",
    "radix": "disable_radix_cache",
}
# The switches that are on: four engines, in which any two of the three switches meet in all four combinations.
_ON: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "cuda": (("graphs", "overlap", "radix"), ("graphs",), ("overlap",), ("radix",)),
    # A CPU has no graphs, and SGLang itself turns the overlap schedule off when it speculates. The radix cache is on in
    # every other test of the real engine.
    "cpu": ((),),
}
WAYS: Mapping[str, Mapping[str, Mapping[str, bool]]] = {
    device: {
        "+".join(on) or "nothing": {argument: name not in on for name, argument in _SWITCHES.items()} for on in choices
    }
    for device, choices in _ON.items()
}
"""By device: the switches that are on, and the engine arguments for them."""


def arguments_of(pair: Pair, changes: Mapping[str, Any]) -> Pair:
    """Return a pair with further engine arguments added to its own."""
    return pair.with_engine(args={**pair.settings.engine.args, **changes})


def ranks_for(pair: Pair, visible: int) -> int:
    """Return over how many of the visible GPUs target and draft can be split: the most that their heads allow."""
    folders = (pair.target.path, pair.draft.path)
    heads = [_heads(json.loads((folder / "config.json").read_text(encoding="utf-8"))) for folder in folders]
    return max(
        count
        for count in range(1, max(1, visible) + 1)
        # Key and value heads are split too, or each rank has a copy of one.
        if all(query % count == 0 and (kept % count == 0 or count % kept == 0) for query, kept in heads)
    )


def _heads(config: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many query heads and key-value heads a config has; a wrapper's are its text model's."""
    for section in ("text_config", "transformer_layer_config", "llm_config"):
        config = config.get(section) or config
    query = int(config["num_attention_heads"])
    return query, int(config.get("num_key_value_heads") or query)
