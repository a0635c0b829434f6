"""Known faults of released engines: classes whose release captures other states than its own rule says.

A fault is a fact like a rule: a row with the releases that show it, and it is part of every reading of those releases.
`harness conformance` compares SGLang with rule and fault together, so a row whose fault is gone is red.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from packaging.version import Version

__all__ = ["KNOWN", "NOTHING", "NO_RESIDUAL", "Effect", "KnownFault", "faults_of", "find_known", "not_judged"]


@dataclass(frozen=True)
class Effect:
    """How the captured states differ from the boundaries that the rule asks for.

    Attributes:
        text: The captured states, in words.
        captures: From the boundaries asked for to the states captured; `None` is a state that is not any boundary's.
    """

    text: str
    captures: Callable[[Sequence[int]], tuple[int | None, ...]]


NO_RESIDUAL = Effect(
    "each block's own output without the residual stream, which is not the state of any boundary",
    # The embedding comes out whole: it does not have a residual to lose yet.
    lambda boundaries: tuple(None if boundary else 0 for boundary in boundaries),
)
NOTHING = Effect(
    "nothing: the setter sets layers_to_capture, and the forward tests _is_layer_to_capture", lambda _boundaries: ()
)


@dataclass(frozen=True)
class KnownFault:
    """A fault in the capture of some classes, over a span of SGLang releases.

    Attributes:
        classes: The classes that show it.
        first: First release that shows it.
        last: Last release read that shows it.
        effect: The states captured instead.
        thread: Its public thread, such as `sglang#39286`; `None` if none is known.
        evidence: How it is known.
    """

    classes: tuple[str, ...]
    first: str
    last: str
    effect: Effect
    thread: str | None
    evidence: str

    @property
    def releases(self) -> str:
        """The releases that show it, such as `SGLang 0.5.17 to 0.5.23`."""
        return f"SGLang {self.first} to {self.last}"

    @property
    def reference(self) -> str:
        """Where to read about it: its thread, or the evidence without one."""
        return self.thread or self.evidence

    def __str__(self) -> str:
        return f"{self.releases} captures {self.effect.text} ({self.reference})"


KNOWN = (
    KnownFault(
        ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
        "0.5.17",
        "0.5.23",
        NO_RESIDUAL,
        "sglang#39286",
        "open in September 2026; from 0.5.17 on Gemma3TextModel.forward carries `residual` from block to block and "
        "appends `hidden_states` alone; run on 0.5.23, the captured tensors equal no hidden state of transformers",
    ),
    KnownFault(
        ("Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"),
        "0.5.11",
        "0.5.21",
        NOTHING,
        "sglang#38307",
        "the setter is Qwen3-VL's and the forward Qwen3.5's own; from 0.5.22 on Qwen3-VL's calls Qwen3.5's",
    ),
    KnownFault(
        ("InternS2PreviewForConditionalGeneration", "InternS2MobiusForConditionalGeneration"),
        "0.5.12",
        "0.5.21",
        NOTHING,
        "sglang#38307",
        "as in Qwen3.5, whose classes are its bases",
    ),
    KnownFault(
        ("MiniMaxM3SparseForCausalLM",),
        "0.5.16",
        "0.5.17",
        NOTHING,
        None,
        "read in minimax_m3.py; from 0.5.18 on the setter sets both",
    ),
)

# Draft models derive from their target's class and inherit its setter; a draft's own states are never captured.
_DRAFT_ENDINGS = ("NextN", "MTP", "Eagle", "Eagle3", "AssistantForCausalLM")

_NOT_JUDGED = {
    "EmbeddingGemmaModel": "it makes embeddings and generates no text",
    "MindSporeForCausalLM": "it passes on to a model of another package, which is not among SGLang's files",
    "Qwen4ExpForConditionalGeneration": "the captured states do not leave its decoder: Qwen4ExpModel.forward returns "
    "its hyper-connection streams in their place (qwen4_exp.py, 0.5.23)",
}


def faults_of(architecture: str) -> tuple[KnownFault, ...]:
    """Return the faults that a class is known to show in any release."""
    return tuple(fault for fault in KNOWN if architecture in fault.classes)


def find_known(architecture: str, version: str | Version) -> KnownFault | None:
    """Return the fault that a class is known to show in a release, `None` if none is known."""
    release = Version(str(version))
    for fault in faults_of(architecture):
        if Version(fault.first) <= release <= Version(fault.last):
            return fault
    return None


def not_judged(architecture: str) -> str | None:
    """Return why conformance leaves out a class that has the setter, `None` if it is a target to judge."""
    if architecture.endswith(_DRAFT_ENDINGS):
        return "it is a draft, and inherits the setter from its target's class"
    return _NOT_JUDGED.get(architecture)
