"""What a run may be compared with: the same target shape, decode settings and prompts."""

from __future__ import annotations

from collections.abc import Sequence

from harness.counts.stages import stage_names
from harness.errors import InputError
from harness.golden.schema import TargetShape
from harness.golden.store import Golden
from harness.pair.pair import Pair
from harness.pair.prompts import Prompt

__all__ = ["require_comparable", "target_shape"]


def target_shape(pair: Pair) -> TargetShape:
    """Return what makes a pair's target another target."""
    target = pair.target
    return TargetShape(
        architecture=target.architecture,
        num_layers=target.num_layers,
        hidden_size=target.hidden_size,
        vocab_size=target.vocab_size,
    )


def require_comparable(golden: Golden, pair: Pair, prompts: Sequence[Prompt], *, subset: bool) -> None:
    """Refuse a comparison that would mean nothing.

    Args:
        golden: The golden.
        pair: The pair.
        prompts: The prompts chosen.
        subset: Whether only part of the prompts was asked for.

    Raises:
        InputError: The golden is of another pair or target, other settings or other prompts.
    """
    document, file = golden.document, golden.file
    again = f"harness record {pair.file} --reason …"
    if document.pair != pair.name:
        raise InputError(
            "the golden is of another pair",
            file=file,
            key="pair",
            found=document.pair,
            expected=f"{pair.name}, as {pair.file} says",
            next_step=f"give the pair its own name back, or record a golden of it: {again}",
        )
    ours = target_shape(pair)
    for name in type(ours).model_fields:
        if getattr(document.target, name) != getattr(ours, name):
            raise InputError(
                "the golden was recorded with another target",
                file=file,
                key=f"target.{name}",
                found=getattr(document.target, name),
                expected=f"{getattr(ours, name)}, as {pair.target.path} has",
                next_step=f"give the pair another name, or record it again: {again}",
            )
    settings = pair.settings.decode.comparable()
    for name, value in settings.items():
        if document.decode.get(name) != value:
            raise InputError(
                "the golden was recorded with other decode settings",
                file=file,
                key=f"decode.{name}",
                found=document.decode.get(name),
                expected=f"{value}, as {pair.file} says",
                next_step=f"use the golden's settings, or record it again: {again}",
            )
    _require_stages(golden, pair)
    _require_prompts(golden, pair, prompts, subset, again)


def _require_stages(golden: Golden, pair: Pair) -> None:
    """Refuse sketches of other stages than a run of the pair has: both count by the same target and chain length."""
    document = golden.document
    stages = len(stage_names(pair.target.num_layers, len(document.wiring.boundaries), pair.settings.decode.num_steps))
    for tensors in golden.tensors.values():
        if tensors.sketches is not None and tensors.sketches.shape[1] != stages:
            raise InputError(
                "the golden's sketches are of other stages than its wiring says",
                file=golden.file,
                key="wiring.boundaries",
                found=f"{tensors.sketches.shape[1]} stages",
                expected=f"{stages}, by {pair.target.num_layers} blocks and boundaries {document.wiring.boundaries}",
                next_step="restore it from version control, or record it again",
            )


def _require_prompts(golden: Golden, pair: Pair, prompts: Sequence[Prompt], subset: bool, again: str) -> None:
    known = {prompt.id: prompt.hash for prompt in golden.document.prompts}
    for prompt in prompts:
        if prompt.id not in known:
            raise InputError(
                "the golden has no such prompt",
                file=golden.file,
                key="prompts",
                found=f"no {prompt.id!r}",
                expected=f"the prompts of {pair.prompts_file}",
                next_step=f"record it again: {again}",
            )
        if known[prompt.id] != prompt.hash:
            raise InputError(
                "the prompt is not the one that was recorded",
                file=pair.prompts_file,
                key=f"prompt {prompt.id!r}",
                found=f"tokens with hash {prompt.hash}",
                expected=f"{known[prompt.id]}, as {golden.file} has",
                next_step=f"restore the prompt, the tokenizer or the chat template, or record it again: {again}",
            )
    left_out = known.keys() - {prompt.id for prompt in prompts}
    if left_out and not subset:
        raise InputError(
            "the prompts file lacks prompts that were recorded",
            file=pair.prompts_file,
            key="id",
            found=f"no {min(left_out)!r}" + (f" and {len(left_out) - 1} more" if len(left_out) > 1 else ""),
            expected=f"the prompts of {golden.file}",
            next_step="restore them, or compare on some with --prompts",
        )
