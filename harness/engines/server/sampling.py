"""What is asked of a server's sampling, so that its texts are the argmax of its target."""

from __future__ import annotations

from typing import Any

__all__ = ["SENT", "WITHOUT_EFFECT"]

SENT: dict[str, Any] = {
    "temperature": 0.0,
    "ignore_eos": True,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "min_new_tokens": 0,
}
"""Sent with every request: a server may have preferred values of its own for them."""

WITHOUT_EFFECT = {"top_k", "max_new_tokens", "skip_special_tokens", "spaces_between_special_tokens"}
"""Further parameters, which a temperature of 0 overrides."""
