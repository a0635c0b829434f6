"""Target: does the target itself still choose the tokens of the reference continuations?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from harness.counts.statistics import Unbounded
from harness.counts.ties import NEAR_TIE
from harness.detectors.base import Context, Finding, State

__all__ = ["TargetFigures", "detect"]


@dataclass(frozen=True)
class TargetFigures:
    """The target's own choices along the reference continuations.

    Attributes:
        evaluated: Positions at which the target's argmax was compared.
        drifted: Positions at which it chooses another token, by more than a near-tie.
        near_ties: Positions at which it chooses another token within the tolerance.
        drifted_prompts: Number of prompts with at least one position that drifted.
        prompts: Number of prompts measured.
        greatest_gap: The greatest distance, in logits, of a reference token below the target's own choice.
        tolerance: The greatest such distance, in logits, that counts as a near-tie in the coarser dtype of golden and
            run.
        explained: Positions that may drift without being a change: what the golden's own disturbed runs lead to expect.
        decides: Whether more positions drifted than that, which is a change on every engine, device and dtype.
    """

    evaluated: int
    drifted: int
    near_ties: int
    drifted_prompts: int
    prompts: int
    greatest_gap: Unbounded
    tolerance: float
    explained: int
    decides: bool


def detect(context: Context) -> Finding[TargetFigures]:
    """Compare the target's argmax along the reference continuations.

    Rounding turns near-ties over, and those decide nothing. A disagreement beyond them is a change, from which every
    later finding may follow: on the golden's own class and on every other, by any judge.
    """
    checks = [record.target for record in context.run.records]
    known = [check for check in checks if check is not None]
    if not known:
        return Finding(State.NOT_APPLICABLE, "this engine decodes a text of its own")
    agrees = np.concatenate([check.agrees for check in known])
    gaps = np.concatenate([check.gaps for check in known])
    if len(agrees) == 0:
        return Finding(State.NOT_MEASURED, "no position of a reference continuation was compared")
    tolerance = max(NEAR_TIE[context.run.dtype], NEAR_TIE[context.golden.document.dtype])
    drifted = sum(int(check.drifts(tolerance).sum()) for check in known)
    near_ties = int((~agrees).sum()) - drifted
    drifted_prompts = sum(bool(check.drifts(tolerance).any()) for check in known)
    explained = _explained(context, len(agrees))
    figures = TargetFigures(
        evaluated=len(agrees),
        drifted=drifted,
        near_ties=near_ties,
        drifted_prompts=drifted_prompts,
        prompts=len(known),
        greatest_gap=float(gaps.max()),
        tolerance=tolerance,
        explained=explained,
        decides=drifted > explained,
    )
    if drifted == 0:
        text = f"chooses the reference continuation at all {len(agrees)} positions"
        return Finding(State.PASS, text + (f" but {near_ties} near-ties" if near_ties else ""), figures)
    text = f"target drift: chooses another token at {drifted} of {len(agrees)} positions, in {drifted_prompts} prompts"
    text += f", by up to {figures.greatest_gap:.3g} logits, of which rounding explains {tolerance:g}"
    if figures.decides:
        return Finding(State.CHANGED, text, figures)
    return Finding(State.PASS, f"{text}; as many as {explained} are explained by the golden's own noise", figures)


def _explained(context: Context, evaluated: int) -> int:
    """Return how many of the evaluated positions may drift: the share of the worst arm that measured the noise."""
    noise = context.noise
    shares = [arm.drifted / arm.evaluated for arm in noise.arms if arm.evaluated] if noise is not None else []
    return math.ceil(max(shares, default=0.0) * evaluated)
