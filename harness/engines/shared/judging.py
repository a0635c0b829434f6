"""Whether the target alone would choose what an engine output: one judge, with one meaning of deterministic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from harness.counts.run import PromptRecord, TargetCheck
from harness.pair.prompts import Prompt

__all__ = ["TargetJudge", "judge_output"]

Tokens = tuple[int, ...]


class TargetJudge(Protocol):
    """A target that can be asked, without speculation, about known continuations."""

    def agreement(self, prompts: Sequence[Prompt], continuations: Sequence[Tokens]) -> list[TargetCheck]:
        """Return the target's agreement with each continuation, by one forward and no decoding."""
        ...

    def forget(self) -> None:
        """Drop whatever is cached of earlier questions, so that the next answer is computed again."""
        ...


def judge_output(
    target: TargetJudge,
    prompts: Sequence[Prompt],
    records: Sequence[PromptRecord],
    references: Sequence[Tokens],
    advance: Callable[[int], None] = lambda _count: None,
) -> list[PromptRecord]:
    """Add to decoders' records whether the target agrees with their output and with the reference continuations.

    If the target would not have chosen a token of the output, it is asked about that prompt once more, alone. A target
    that answers differently the second time does not agree with itself, and says nothing about speculation:
    `PromptRecord.deterministic` is then false.

    Args:
        target: The target, without speculation.
        prompts: What was continued, in the records' order.
        records: What was decoded, in the prompts' order.
        references: The reference continuations, in the prompts' order.
        advance: Called with the number of prompts finished.
    """
    theirs = target.agreement(prompts, references)
    # Nearly always the output is the beginning of the reference continuation, and was judged together with it.
    own = [
        _beginning(check, len(record.continuation)) if _begins(reference, record.continuation) else None
        for reference, record, check in zip(references, records, theirs, strict=True)
    ]
    other = [index for index, check in enumerate(own) if check is None]
    again = target.agreement([prompts[index] for index in other], [records[index].continuation for index in other])
    for index, found in zip(other, again, strict=True):
        own[index] = found
    judged = []
    for prompt, record, ours, reference in zip(prompts, records, own, theirs, strict=True):
        assert ours is not None
        deterministic = None if ours.agrees.all() else _repeats(target, prompt, record.continuation, ours)
        judged.append(replace(record, own=ours, target=reference, deterministic=deterministic))
    advance(len(prompts))
    return judged


def _begins(reference: Tokens, output: Tokens) -> bool:
    return reference[: len(output)] == output


def _beginning(check: TargetCheck, length: int) -> TargetCheck:
    return TargetCheck(check.agrees[:length], check.gaps[:length])


def _repeats(target: TargetJudge, prompt: Prompt, output: Tokens, first: TargetCheck) -> bool:
    """Whether the target, asked about the output again and alone, agrees with it at the same positions."""
    target.forget()
    (second,) = target.agreement([prompt], [output])
    return bool((second.agrees == first.agrees).all())
