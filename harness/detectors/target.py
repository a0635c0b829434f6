"""Target: does the target itself still choose the tokens of the reference continuations?

Another kernel, device or dtype turns over near-ties, and only those. A gap beyond them is a change of the target in
every class, whoever judges: a server that is its own judge puts out other tokens and finds them right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from harness.counts.statistics import Unbounded
from harness.detectors.base import Context, Finding, State

__all__ = ["NEAR_TIE", "TargetFigures", "detect"]

# By the coarser dtype of golden and run, the greatest gap between two logits that rounding can turn over, for logits
# that spread over about 10. A larger gap cannot come from another kernel of the same precision. A threshold outside of
# alpha: docs/statistics.md has the greatest gaps that were measured.
NEAR_TIE = {"float64": 1e-9, "float32": 1e-3, "float16": 0.1, "bfloat16": 0.5}


@dataclass(frozen=True)
class TargetFigures:
    """The target's own choices along the reference continuations.

    Attributes:
        evaluated: Positions at which the target's argmax was compared.
        drifted: Positions at which it chooses another token, by more than a near-tie.
        explained: As many of them as the golden's own disturbed copies of the target explain: the share of the worst.
        near_ties: Positions at which it chooses another token within the tolerance.
        drifted_prompts: Number of prompts with at least one position that drifted.
        prompts: Number of prompts measured.
        greatest_gap: The greatest distance, in logits, of a reference token below the target's own choice.
        tolerance: The greatest such distance, in logits, that counts as a near-tie in the coarser dtype of golden and
            run.
        decides: Whether there is more drift than is explained, so that it decides.
    """

    evaluated: int
    drifted: int
    explained: int
    near_ties: int
    drifted_prompts: int
    prompts: int
    greatest_gap: Unbounded
    tolerance: float
    decides: bool


def detect(context: Context) -> Finding[TargetFigures]:
    """Compare the target's argmax along the reference continuations.

    A disagreement beyond near-ties is a change, from which every later finding may follow. Disagreement within them is
    counted and decides nothing.
    """
    checks = [record.target for record in context.run.records]
    known = [check for check in checks if check is not None]
    if not known:
        return Finding(State.NOT_APPLICABLE, "this engine decodes a text of its own")
    agrees = np.concatenate([check.agrees for check in known])
    gaps = np.concatenate([check.gaps for check in known])
    if len(agrees) == 0:
        return Finding(State.NOT_MEASURED, "no position of a reference continuation was compared")
    tolerance = context.coarser(NEAR_TIE)
    # Written so that a NaN counts as drift: it is not less than anything.
    drifted = int((~agrees & ~(gaps <= tolerance)).sum())
    near_ties = int((~agrees).sum()) - drifted
    drifted_prompts = sum(bool((~check.agrees & ~(check.gaps <= tolerance)).any()) for check in known)
    explained = min(drifted, _explained(context, len(agrees)))
    figures = TargetFigures(
        evaluated=len(agrees),
        drifted=drifted,
        explained=explained,
        near_ties=near_ties,
        drifted_prompts=drifted_prompts,
        prompts=len(known),
        greatest_gap=float(gaps.max()),
        tolerance=tolerance,
        decides=drifted > explained,
    )
    if drifted == 0:
        text = f"chooses the reference continuation at all {len(agrees)} positions"
        return Finding(State.PASS, text + (f" but {near_ties} near-ties" if near_ties else ""), figures)
    text = (
        f"target drift: chooses another token at {drifted} of {len(agrees)} positions, in {drifted_prompts} prompts, "
        f"by up to {figures.greatest_gap:.2f} logits; near-ties of rounding go up to {tolerance:g}"
    )
    if figures.decides:
        if explained:
            text += f", and the golden's own copies explain {explained} of these positions"
        return Finding(State.CHANGED, text, figures)
    return Finding(State.PASS, f"{text}, and the golden's own copies explain all of these positions", figures)


def _explained(context: Context, positions: int) -> int:
    """Return at how many positions the target drifts in the worst of the golden's disturbed copies of it."""
    noise = context.noise
    shares = [arm.drifted / arm.evaluated for arm in getattr(noise, "arms", ()) if getattr(arm, "evaluated", 0)]
    return math.ceil(max(shares, default=0.0) * positions)
