"""Lossless: whether the tokens output with speculation are those that the target alone would have chosen."""

from __future__ import annotations

from dataclasses import dataclass

from harness.counts.ties import NEAR_TIE
from harness.detectors.base import Context, Finding, State

__all__ = ["LosslessFigures", "detect"]


@dataclass(frozen=True)
class LosslessFigures:
    """What a decoding engine output, judged by the target alone.

    Attributes:
        tokens: Output tokens judged.
        wrong: Tokens that the target does not choose, by more than a near-tie.
        near_ties: Tokens that it does not choose within the tolerance.
        broken_prompts: Number of prompts with at least one wrong token.
        prompts: Number of prompts measured.
        not_deterministic: Ids of broken prompts on which the target, asked twice without speculation, does not agree
            with itself.
        tolerance: The greatest distance below the target's own choice, in logits, that counts as a near-tie.
    """

    tokens: int
    wrong: int
    near_ties: int
    broken_prompts: int
    prompts: int
    not_deterministic: tuple[str, ...]
    tolerance: float


def detect(context: Context) -> Finding[LosslessFigures]:
    """Look at every token that a decoding engine output: the target must choose it, except at near-ties.

    A target that decodes the same prompt differently if it is asked twice without speculation cannot be a witness.
    Nothing follows from such a prompt.
    """
    known = [(record, record.own) for record in context.run.records if record.own is not None]
    if not known:
        return Finding(State.NOT_APPLICABLE, "this engine does not decode a text of its own")
    tolerance = NEAR_TIE[context.run.dtype]
    total = sum(len(check.agrees) for _, check in known)
    if total == 0:
        return Finding(State.NOT_MEASURED, "no token was output")
    # Written so that a NaN counts as wrong: it is not less than anything.
    wrong = [(record, check, check.drifts(tolerance)) for record, check in known]
    broken = [(record, check, where) for record, check, where in wrong if where.any()]
    wavering = tuple(record.id for record, _, _ in broken if record.deterministic is False)
    figures = LosslessFigures(
        tokens=total,
        wrong=int(sum(where.sum() for _, _, where in broken)),
        near_ties=int(sum((~check.agrees & ~where).sum() for _, check, where in wrong)),
        broken_prompts=len(broken),
        prompts=len(known),
        not_deterministic=wavering,
        tolerance=tolerance,
    )
    if not broken:
        return Finding(State.PASS, f"the target chooses all {total} output tokens", figures)
    if len(wavering) == len(broken):
        text = f"without speculation the target does not agree with itself on {len(wavering)} prompts: not judged"
        return Finding(State.NOT_MEASURED, text, figures)
    # A prompt on which the target agrees with itself is the better evidence.
    record, check, where = next(row for row in broken if row[0].id not in wavering)
    position = int(where.argmax())
    text = (
        f"{figures.wrong} of {total} tokens are not the target's choice, in {len(broken)} prompts; first in "
        f"{record.id!r}: token {record.continuation[position]} at position {position}, {check.gaps[position]:.2f} "
        "below the highest logit"
    )
    return Finding(State.REGRESSION, text, figures)
