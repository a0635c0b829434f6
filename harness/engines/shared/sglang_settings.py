"""The settings by which SGLang makes a pair's rounds, and counts them as the harness does: ours and a server's."""

from __future__ import annotations

from typing import Any

from harness.errors import InputError
from harness.pair.pair import Pair

__all__ = ["UNCOUNTABLE", "require_served_by", "speculation_of", "speculative_settings"]

UNCOUNTABLE: dict[str, Any] = {
    "enable_multi_layer_eagle": False,
    "speculative_adaptive": False,
    "speculative_use_block_verification": False,
    "speculative_use_rejection_sampling": False,
}
"""Settings that change how SGLang counts, or what it proposes, from round to round: each must be off."""


def speculative_settings(pair: Pair) -> dict[str, Any]:
    """Return the settings of a pair's speculation."""
    decode = pair.settings.decode
    return {
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": decode.num_steps,
        "speculative_eagle_topk": decode.topk,
        "speculative_num_draft_tokens": decode.num_draft_tokens or decode.num_steps + 1,
    }


def speculation_of(pair: Pair) -> dict[str, Any]:
    """Return the settings that a running SGLang must have to make a pair's rounds and count them."""
    return speculative_settings(pair) | UNCOUNTABLE


def require_served_by(pair: Pair, version: str, *, who: str) -> None:
    """Refuse a pair that is served by another engine or version than the one that is asked.

    Args:
        pair: The pair that this SGLang is to serve.
        version: The version of the SGLang that is asked.
        who: Which SGLang that is, such as `the one installed`.

    Raises:
        InputError: The pair file names another engine or version.
    """
    served_by = pair.settings.served_by
    if served_by not in (None, "sglang", f"sglang=={version}"):
        raise InputError(
            f"the pair is served by another engine or version than {who}",
            file=pair.file,
            key="served_by",
            found=served_by,
            expected=f"sglang=={version}, sglang, or no such key",
            next_step=f"install what the pair is served by, or set served_by = 'sglang=={version}'",
        )
