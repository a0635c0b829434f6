"""Whether a pair may be compared with a golden: same target shape, decode settings and prompts."""

from __future__ import annotations

from collections.abc import Sequence

from harness.counts.stages import stage_names
from harness.errors import InputError
from harness.golden.schema import TargetShape
from harness.golden.store import Golden
from harness.pair.pair import Pair, load_prompts
from harness.pair.prompts import Prompt

__all__ = ["recorded_prompts", "require_comparable", "target_shape"]


def target_shape(pair: Pair) -> TargetShape:
    """Return the properties by which two targets count as different ones."""
    target = pair.target
    return TargetShape(
        architecture=target.architecture,
        num_layers=target.num_layers,
        hidden_size=target.hidden_size,
        vocab_size=target.vocab_size,
    )


def require_comparable(golden: Golden, pair: Pair, prompts: Sequence[Prompt], *, subset: bool) -> None:
    """Refuse a comparison that would be meaningless.

    Args:
        golden: The golden that a run of the pair would be compared with.
        pair: Its name, target and decode settings must be those of the golden.
        prompts: The prompts that will be run; each must be one of the golden's.
        subset: Whether the user chose some of the prompts; otherwise a missing one is an error.

    Raises:
        InputError: The golden was recorded for another pair or target, or with other settings or prompts.
    """
    document, file = golden.document, golden.file
    again = f"harness record {pair.file} --reason …"
    if document.pair != pair.name:
        raise InputError(
            "the golden was recorded for another pair",
            file=file,
            key="pair",
            found=document.pair,
            expected=f"{pair.name}, the name in {pair.file}",
            next_step=f"restore the pair's name, or record a golden for it: {again}",
        )
    ours = target_shape(pair)
    for name in type(ours).model_fields:
        if getattr(document.target, name) != getattr(ours, name):
            raise InputError(
                "the golden was recorded with another target",
                file=file,
                key=f"target.{name}",
                found=getattr(document.target, name),
                expected=f"{getattr(ours, name)}, as in {pair.target.path}",
                next_step=f"give the pair another name, or record it again: {again}",
            )
    _require_steps_asked_for(golden, pair)
    settings = pair.settings.decode.comparable()
    for name, value in settings.items():
        if document.decode.get(name) != value:
            raise InputError(
                "the golden was recorded with other decode settings",
                file=file,
                key=f"decode.{name}",
                found=document.decode.get(name),
                expected=f"{value}, as in {pair.file}",
                next_step=f"use the golden's settings, or record it again: {again}",
            )
    _require_same_ends(golden, pair, again)
    _require_stages(golden, pair)
    _require_prompts(golden, pair, prompts, subset, again)


def _require_steps_asked_for(golden: Golden, pair: Pair) -> None:
    """Refuse `--k` with another chain length than the golden's: no change of the pair file would mend that."""
    asked, recorded = pair.settings.decode.num_steps, golden.document.decode["num_steps"]
    if asked == recorded or "num_steps" not in pair.user_named:
        return
    raise InputError(
        "the golden was recorded with chains of another length",
        file=golden.file,
        key="--k",
        found=asked,
        expected=recorded,
        next_step=f"leave --k out, or give --k {recorded}; harness measure {pair.file} --k {asked} measures without a "
        f"verdict; to judge this length too, record a copy of the pair file with another name and num_steps = {asked}",
    )


def _require_same_ends(golden: Golden, pair: Pair, again: str) -> None:
    """Refuse a target whose texts end at other tokens than the recorded ones: rounds would be counted past their end.

    A golden of version 1 does not say which ids they were. Its texts do, as far as they contradict today's ids.
    """
    document, ours = golden.document, pair.target.eos_ids
    source = f"the end-of-text ids of {pair.target.path}"
    next_step = f"restore eos_token_id in its generation_config.json or config.json, or record it again: {again}"
    if document.eos_ids is not None:
        if set(document.eos_ids) != set(ours):
            raise InputError(
                "the golden was recorded with other end-of-text ids",
                file=golden.file,
                key="eos_ids",
                found=sorted(document.eos_ids),
                expected=f"{sorted(ours)}, {source}",
                next_step=next_step,
            )
        return
    limits = pair.limits
    for prompt in document.prompts:
        text = golden.continuation(prompt.id)
        past = next((token for token in text[:-1] if token in ours), None)
        if past is not None:
            problem = f"prompt {prompt.id!r} goes on after token {past}, which ends a text today"
        elif text and len(text) < limits.text_length and not limits.ended(text):
            problem = f"prompt {prompt.id!r} ends at token {text[-1]}, which does not end a text today"
        else:
            continue
        raise InputError(
            "the golden was recorded with other end-of-text ids",
            file=golden.file,
            key="prompts",
            found=problem,
            expected=f"texts that end at {sorted(ours)}, {source}",
            next_step=next_step,
        )


def recorded_prompts(golden: Golden, pair: Pair, selection: str | None = None) -> list[Prompt]:
    """Read the pair's prompts without those that were left out when the golden was recorded.

    Args:
        golden: The golden that a run of the pair would be compared with.
        pair: The pair whose prompts are read.
        selection: The value of `--prompts`; `None` means all.

    Raises:
        InputError: The prompts cannot be read, or none is left.
    """
    left_out = {prompt.id: prompt.hash for prompt in golden.document.left_out}
    prompts = load_prompts(pair, selection)
    kept = [prompt for prompt in prompts if left_out.get(prompt.id) != prompt.hash]
    if not kept:
        raise InputError(
            "all of these prompts were left out when the golden was recorded, as their continuations are loops",
            file=golden.file,
            key="left_out",
            found=", ".join(prompt.id for prompt in prompts),
            next_step="choose others with --prompts",
        )
    return kept


def _require_stages(golden: Golden, pair: Pair) -> None:
    """Refuse sketches with another number of stages than a run has; target and chain length determine it for both."""
    document = golden.document
    stages = len(stage_names(pair.target.num_layers, len(document.wiring.boundaries), pair.settings.decode.num_steps))
    for tensors in golden.tensors.values():
        if tensors.sketches is not None and tensors.sketches.shape[1] != stages:
            raise InputError(
                "the number of stages in the golden's sketches does not fit its wiring",
                file=golden.file,
                key="wiring.boundaries",
                found=f"{tensors.sketches.shape[1]} stages",
                expected=f"{stages}, for {pair.target.num_layers} blocks and boundaries {document.wiring.boundaries}",
                next_step="restore it from version control, or record it again",
            )


def _require_prompts(golden: Golden, pair: Pair, prompts: Sequence[Prompt], subset: bool, again: str) -> None:
    known = {prompt.id: prompt.hash for prompt in golden.document.prompts}
    for prompt in prompts:
        if prompt.id not in known:
            raise InputError(
                f"the golden does not have the prompt {prompt.id!r}",
                file=golden.file,
                key="prompts",
                expected=f"all prompts of {pair.prompts_file}",
                next_step=f"record it again: {again}",
            )
        if known[prompt.id] != prompt.hash:
            raise InputError(
                "the prompt is not the one that was recorded",
                file=pair.prompts_file,
                key=f"prompt {prompt.id!r}",
                found=f"tokens with hash {prompt.hash}",
                expected=f"{known[prompt.id]}, as in {golden.file}",
                next_step=f"restore the prompt, the tokenizer or the chat template, or record it again: {again}",
            )
    left_out = known.keys() - {prompt.id for prompt in prompts}
    if left_out and not subset:
        more = f" and {len(left_out) - 1} more" if len(left_out) > 1 else ""
        raise InputError(
            "the prompts file lacks prompts that the golden has",
            file=pair.prompts_file,
            key="id",
            expected=f"{min(left_out)!r}{more} from {golden.file}",
            next_step="restore them, or compare on fewer prompts with --prompts",
        )
