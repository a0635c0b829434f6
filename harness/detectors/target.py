"""Target: does the target itself still choose the tokens of the reference continuations?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.counts.statistics import Unbounded
from harness.detectors.base import Context, Finding, State

__all__ = ["NEAR_TIE", "TargetFigures", "detect"]

# By dtype, the greatest gap between two logits that rounding can turn over, for logits that spread over about 10. A
# larger gap cannot come from another kernel of the same precision.
NEAR_TIE = {"float64": 1e-9, "float32": 1e-3, "float16": 0.1, "bfloat16": 0.5}


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
        tolerance: The greatest such distance, in logits, that counts as a near-tie in the run's dtype.
        decides: Whether drift decides: only on the golden's own class.
    """

    evaluated: int
    drifted: int
    near_ties: int
    drifted_prompts: int
    prompts: int
    greatest_gap: Unbounded
    tolerance: float
    decides: bool


def detect(context: Context) -> Finding[TargetFigures]:
    """Compare the target's argmax along the reference continuations.

    On the golden's own class, a disagreement beyond a near-tie is a change, from which every later finding may follow.
    On another class or dtype it is expected: it is reported and decides nothing.
    """
    checks = [record.target for record in context.run.records]
    known = [check for check in checks if check is not None]
    if not known:
        return Finding(State.NOT_APPLICABLE, "this engine decodes a text of its own")
    agrees = np.concatenate([check.agrees for check in known])
    gaps = np.concatenate([check.gaps for check in known])
    if len(agrees) == 0:
        return Finding(State.NOT_MEASURED, "no position of a reference continuation was compared")
    tolerance = NEAR_TIE[context.run.dtype]
    # Written so that a NaN counts as drift: it is not less than anything.
    drifted = int((~agrees & ~(gaps <= tolerance)).sum())
    near_ties = int((~agrees).sum()) - drifted
    drifted_prompts = sum(bool((~check.agrees & ~(check.gaps <= tolerance)).any()) for check in known)
    figures = TargetFigures(
        evaluated=len(agrees),
        drifted=drifted,
        near_ties=near_ties,
        drifted_prompts=drifted_prompts,
        prompts=len(known),
        greatest_gap=float(gaps.max()),
        tolerance=tolerance,
        decides=context.same_class,
    )
    if drifted == 0:
        text = f"chooses the reference continuation at all {len(agrees)} positions"
        return Finding(State.PASS, text + (f" but {near_ties} near-ties" if near_ties else ""), figures)
    text = f"target drift: chooses another token at {drifted} of {len(agrees)} positions, in {drifted_prompts} prompts"
    if context.same_class:
        return Finding(State.CHANGED, text, figures)
    text += f" (golden of {context.golden.golden_class}: reported, decides nothing)"
    return Finding(State.PASS, text, figures)
