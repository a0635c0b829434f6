"""The public kinds of draft configs, by writer: recognised by their own marks, never guessed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["FAMILIES", "Family", "recognise"]


@dataclass(frozen=True)
class Family:
    """One kind of draft config.

    Attributes:
        name: Its name here.
        mark: The mark that it is recognised by, in words.
        writers: Conventions that its layer ids may be written in, the likeliest first.
        section: The key of the nested transformer config; `None` if the sizes are at the top level.
        refused: Why it is not an EAGLE-3 draft of one layer; `None` if it is one.
    """

    name: str
    mark: str
    writers: tuple[str, ...]
    section: str | None = None
    refused: str | None = None


FAMILIES = {
    family.name: family
    for family in (
        Family(
            "speculators",
            "speculators_model_type eagle3, or the architecture Eagle3Speculator",
            ("speculators==0.4", "speculators==0.3"),
            section="transformer_layer_config",
        ),
        Family(
            "p-eagle",
            "the architecture PEagleDraftModel",
            (),
            refused="a P-EAGLE draft has several layers and drafts in parallel: it is not an EAGLE-3 draft",
        ),
        Family(
            "deepseek",
            "the architecture Eagle3DeepseekV2ForCausalLM (MLA: ModelOpt, Kimi)",
            ("modelopt", "sglang==0.5.23", "sglang==0.5.12", "sglang-sentinel"),
        ),
        Family("angelslim", "the architecture Eagle3LlamaForCausalLM", ("eagle",)),
        Family(
            "llama-eagle3",
            "the architecture LlamaForCausalLMEagle3 (SpecForge, ModelOpt, EAGLE-3.1)",
            ("specforge", "modelopt"),
        ),
        Family("eagle", "the architecture LlamaForCausalLM with a draft_vocab_size (EAGLE repository)", ("eagle",)),
    )
}

_BY_ARCHITECTURE = {
    "Eagle3Speculator": "speculators",
    "PEagleDraftModel": "p-eagle",
    "Eagle3DeepseekV2ForCausalLM": "deepseek",
    "Eagle3LlamaForCausalLM": "angelslim",
    "LlamaForCausalLMEagle3": "llama-eagle3",
}


def recognise(config: Mapping[str, Any]) -> Family | None:
    """Return the family of a draft's config, `None` if it does not have a known mark."""
    if config.get("speculators_model_type") is not None:
        return FAMILIES["speculators"] if config["speculators_model_type"] == "eagle3" else None
    names = config.get("architectures")
    first = names[0] if isinstance(names, list) and names else None
    if isinstance(first, str) and first in _BY_ARCHITECTURE:
        return FAMILIES[_BY_ARCHITECTURE[first]]
    if first == "LlamaForCausalLM" and config.get("draft_vocab_size") is not None:
        return FAMILIES["eagle"]
    return None
