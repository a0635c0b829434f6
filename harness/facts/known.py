"""Where a class of SGLang is known to capture something else than its rule says, and classes that cannot be judged.

Each with its evidence. A known difference that no longer shows is an error of this file: it must follow SGLang.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from packaging.version import Version

__all__ = ["KNOWN", "KnownDifference", "find_known", "not_judged"]


@dataclass(frozen=True)
class KnownDifference:
    """One difference.

    Attributes:
        architectures: The classes that show it.
        first: First release that shows it.
        last: Last release read that shows it.
        what: What is captured instead.
        evidence: How it is known.
        captures: From the boundaries that the rule gives to what is captured.
    """

    architectures: tuple[str, ...]
    first: str
    last: str
    what: str
    evidence: str
    captures: Callable[[Sequence[int]], tuple[int | None, ...]]

    def predicts(self, boundaries: Sequence[int]) -> tuple[int | None, ...]:
        """Return what is captured where the rule says `boundaries`, `None` for a state that is no boundary's."""
        return self.captures(boundaries)


def _without_residual(boundaries: Sequence[int]) -> tuple[int | None, ...]:
    # The embedding is whole: there is no residual yet.
    return tuple(None if boundary else 0 for boundary in boundaries)


def _nothing(_boundaries: Sequence[int]) -> tuple[int | None, ...]:
    return ()


def _other_mechanism(architectures: tuple[str, ...], first: str, last: str, evidence: str) -> KnownDifference:
    return KnownDifference(
        architectures,
        first,
        last,
        "nothing is captured: the setter sets layers_to_capture and the forward looks at _is_layer_to_capture",
        evidence,
        _nothing,
    )


KNOWN = (
    KnownDifference(
        ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
        "0.5.17",
        "0.5.23",
        "each block's own output without the residual stream, which is no boundary's state",
        "sglang#39286 (open); from 0.5.17 on Gemma3TextModel.forward carries `residual` from block to block and "
        "appends `hidden_states` alone; run on 0.5.23, the captured tensors equal no hidden state of transformers",
        _without_residual,
    ),
    _other_mechanism(
        ("Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"),
        "0.5.11",
        "0.5.21",
        "the setter is Qwen3-VL's and the forward Qwen3.5's own; from 0.5.22 on Qwen3-VL's calls Qwen3.5's",
    ),
    _other_mechanism(
        ("InternS2PreviewForConditionalGeneration", "InternS2MobiusForConditionalGeneration"),
        "0.5.12",
        "0.5.21",
        "as Qwen3.5, whose classes are its bases",
    ),
    _other_mechanism(
        ("MiniMaxM3SparseForCausalLM",),
        "0.5.16",
        "0.5.17",
        "minimax_m3.py; from 0.5.18 on the setter sets both",
    ),
)

# Draft models take their target's class as a base and inherit its setter; nobody captures a draft's states.
_DRAFT_ENDINGS = ("NextN", "MTP", "Eagle", "Eagle3", "AssistantForCausalLM")

_NOT_JUDGED = {
    "EmbeddingGemmaModel": "it makes embeddings and generates no text",
    "MindSporeForCausalLM": "it passes on to a model of another package, which is not among SGLang's files",
    "Qwen4ExpForConditionalGeneration": "the captured states do not leave its decoder: Qwen4ExpModel.forward returns "
    "its hyper-connection streams in their place (qwen4_exp.py, 0.5.23)",
}


def find_known(architecture: str, version: str) -> KnownDifference | None:
    """Return the difference that a class is known to show in a release, `None` where none is known."""
    for known in KNOWN:
        if architecture in known.architectures and Version(known.first) <= Version(version) <= Version(known.last):
            return known
    return None


def not_judged(architecture: str) -> str | None:
    """Return why a class that has the setter is no target to judge, `None` where it is one."""
    if architecture.endswith(_DRAFT_ENDINGS):
        return "it is a draft, and inherits the setter from its target's class"
    return _NOT_JUDGED.get(architecture)
