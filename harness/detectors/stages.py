"""Stages: which of the stages between the target's embedding and the draft's logits is the first to differ.

Every other detector sees that something is wrong. This one sees where, since a fault leaves all stages before it as
they were.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.counts.own_rounds import comparable_sketches
from harness.counts.rounds import Limits
from harness.counts.run import PromptRecord
from harness.counts.stages import POSITIONS, sample_positions, stage_names
from harness.counts.statistics import Unbounded
from harness.detectors.base import Context, Finding, State
from harness.golden.tensors import GoldenTensors

__all__ = [
    "Positions",
    "StageDifference",
    "StagesFigures",
    "agree",
    "compare_stages",
    "detect",
    "sketch_tolerance",
]

# By the coarser dtype of golden and run, the greatest relative difference of a sketch that rounding makes, in a target
# of 8 layers. Rounding adds up like a random walk over layers, so that it grows with the root of their number.
SKETCH_TOLERANCE = {"float64": 1e-6, "float32": 1e-3, "float16": 1e-2, "bfloat16": 6e-2}
_MEASURED_LAYERS = 8
# A sketch is short if the values that it projects cancel out, and its relative difference is then a multiple of the
# usual one. Logits cancel out more than states do: in bfloat16 the worst of 288 is off by 0.06, and by 0.03 of states.
_LOGITS = 2.0
# A stage differs if more of its positions are beyond the tolerance than this: a near-tie in an expert's routing sends
# single positions elsewhere, with everything else as it was.
_LEAST_SHARE = 0.02


# By prompt id, bool [n]: which of a text's positions are meant. Prompts that are not listed have none.
Positions = Mapping[str, NDArray[np.bool_]]


@dataclass(frozen=True)
class StageDifference:
    """One stage next to the golden's.

    Attributes:
        name: The stage, such as `boundary 3`, `slot 0`, `fc` or `step 1`.
        share: The share of sampled positions whose sketch differs by more than the tolerance, 0 to 1.
        typical: The median relative difference of its sketches.
    """

    name: str
    share: float
    typical: Unbounded


@dataclass(frozen=True)
class StagesFigures:
    """Every stage between the target's embedding and the draft's logits, compared with the golden.

    Attributes:
        first: The first stage that differs; `None` if all agree.
        tolerance: The relative difference of a state's sketch that counts as rounding; twice that of a step's logits.
        stages: Every stage, in the order in which states pass them.
    """

    first: str | None
    tolerance: float
    stages: tuple[StageDifference, ...]


def detect(context: Context) -> Finding[StagesFigures]:
    """Compare the sketches of every stage with the golden's, in order."""
    found = compare_stages(context)
    if found is None:
        return Finding(State.NOT_APPLICABLE, "this engine or golden does not have sketches of the stages")
    tolerance = _tolerance(context)
    first = next((stage for stage in found if stage.share > _LEAST_SHARE), None)
    figures = StagesFigures(None if first is None else first.name, tolerance, tuple(found))
    if first is None:
        worst = max(found, key=lambda stage: stage.typical)
        return Finding(State.PASS, f"all {len(found)} agree, to {max(worst.typical, 0.0):.1e}", figures)
    text = f"first that differs, at {first.share:.0%} of the sampled positions: {describe(context, first.name)}"
    return Finding(State.CHANGED, text, figures)


def compare_stages(context: Context, at: Positions | None = None) -> list[StageDifference] | None:
    """Return every stage next to the golden's, in order; `None` if one side does not have sketches.

    Args:
        context: The run next to its golden.
        at: Which of the sampled positions are compared; all of them if `None`.
    """
    pairs = _sketches(context, at)
    if pairs is None:
        return None
    ours, golden, asked = pairs
    relative = _relative(ours, golden)
    tolerance = _tolerance(context)
    return [
        StageDifference(name, float((column[known] > _of(name, tolerance)).mean()), float(np.median(column[known])))
        for name, column, known in zip(_names(context), relative.T, asked.T, strict=True)
        if known.any()
    ]


def _of(stage: str, tolerance: float) -> float:
    return tolerance * _LOGITS if stage.startswith("step ") else tolerance


def _names(context: Context) -> tuple[str, ...]:
    document = context.golden.document
    return stage_names(document.target.num_layers, len(document.wiring.boundaries), int(document.decode["num_steps"]))


def describe(context: Context, stage: str, at: Positions | None = None) -> str:
    """Return a stage in words; for the concatenation, which boundary each slot that differs was given.

    Args:
        context: The run next to its golden.
        stage: The stage's name.
        at: The sampled positions that are looked at; all of them if `None`.
    """
    kind, _, number = stage.partition(" ")
    if kind == "boundary":
        return "embedding" if number == "0" else f"boundary {number}, after decoder block {int(number) - 1}"
    if kind != "slot":
        return stage
    slots = []
    for slot, expected in enumerate(context.golden.document.wiring.boundaries):
        served = _served(context, slot, at)
        if served != expected:
            given = "none of the target's boundaries" if served is None else f"boundary {served}"
            slots.append(f"slot {slot}: {given} served, boundary {expected} expected")
    return f"concat, {'; '.join(slots)}" if slots else f"concat, slot {number}"


def _served(context: Context, slot: int, at: Positions | None) -> int | None:
    """Return which boundary is in a slot, by the golden's sketches of all boundaries; `None` if it matches none.

    The golden knows every boundary's state at these positions, also of boundaries that the pair does not capture. So a
    slot names what was read in place of the right state, without another forward.
    """
    pairs = _sketches(context, at)
    assert pairs is not None
    ours, golden, _ = pairs
    if np.isnan(golden[:, 0]).all():
        # It does not have the boundaries: an engine that shows what its draft is given shows nothing else.
        return None
    boundaries = context.golden.document.target.num_layers + 1
    column = ours[:, boundaries + slot]
    typical = [
        float(np.median(_relative(column[:, None], golden[:, boundary][:, None]))) for boundary in range(boundaries)
    ]
    best = int(np.argmin(typical))
    return best if typical[best] <= _tolerance(context) else None


def _sketches(
    context: Context, at: Positions | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]] | None:
    """Return the run's and the golden's sketches, each [positions, stages, WIDTH], without those never taken.

    The third is bool [positions, stages]: whether a stage is defined there, see `_asked`.
    """
    ids = [
        (record.id, tensors)
        for record, _, tensors in context.pairs()
        if record.sketches is not None and tensors.sketches is not None
    ]
    rows = [
        (record.sketches, tensors.sketches, _asked(context, len(tensors.continuation), tensors.sketches.shape[1]))
        for record, _, tensors in context.pairs()
        if record.sketches is not None and tensors.sketches is not None
    ]
    if not rows or any(ours.shape != golden.shape for ours, golden, _ in rows):
        return None
    ours, golden, asked = (np.concatenate(side) for side in zip(*rows, strict=True))
    # A golden of an engine that shows some stages only has NaN at the others, and so has every position not sampled.
    asked &= ~np.isnan(golden).any(axis=2)
    if context.run.stages is not None:
        asked &= np.array([name in context.run.stages for name in _names(context)])
    if at is not None:
        asked &= np.concatenate([_meant(context, len(tensors.continuation), at.get(name)) for name, tensors in ids])
    asked &= np.concatenate(
        [
            _taken(context, record, tensors)
            for record, _, tensors in context.pairs()
            if record.sketches is not None and tensors.sketches is not None
        ]
    )
    known = asked.any(axis=1)
    if not known.any():
        return None
    return ours[known].astype(np.float64), golden[known].astype(np.float64), asked[known].astype(np.bool_)


def _taken(context: Context, record: PromptRecord, tensors: GoldenTensors) -> NDArray[np.bool_]:
    """Return which of a record's sketches were taken on the golden's text, bool [POSITIONS, stages]."""
    decode = context.golden.document.decode
    steps = int(decode["num_steps"])
    limits = Limits(int(decode["max_new_tokens"]), steps, eos_ids=())
    ours, theirs = (
        sample_positions(max(1, limits.starts(range(len(text)))))
        for text in (record.continuation, tensors.continuation)
    )
    return comparable_sketches(record, tensors.continuation, (ours, theirs), steps)


def _asked(context: Context, length: int, stages: int) -> NDArray[np.bool_]:
    """Return, for each sampled position of a text and each stage, whether the text determines its input.

    Near the end of a text that EOS ended, the later steps' inputs would be tokens past the end. There is padding in
    their place, which differs with the prompts that ran together.
    """
    steps = int(context.golden.document.decode["num_steps"])
    asked = np.ones((POSITIONS, stages), dtype=np.bool_)
    for row, position in enumerate(_sampled(context, length)):
        asked[row, stages - steps :] = position + np.arange(steps) < length
    return asked


def _meant(context: Context, length: int, where: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
    """Return which sampled positions of a text are among those meant, bool [POSITIONS, 1]."""
    meant = [
        where is not None and position < len(where) and bool(where[position]) for position in _sampled(context, length)
    ]
    return np.array(meant, dtype=np.bool_)[:, None]


def _sampled(context: Context, length: int) -> tuple[int, ...]:
    decode = context.golden.document.decode
    limits = Limits(int(decode["max_new_tokens"]), int(decode["num_steps"]), eos_ids=())
    return sample_positions(max(1, limits.starts(range(length))))


def _relative(ours: NDArray[np.float64], golden: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each sketch's difference over the golden's norm, [positions, stages]; infinite if it is not a number."""
    length = np.maximum(np.linalg.norm(golden, axis=-1), 1e-12)
    # A run's own states may overflow. Infinity less a number is infinite, and a NaN counts as infinitely different.
    difference = np.linalg.norm(np.nan_to_num(ours, nan=np.inf) - golden, axis=-1) / length
    result: NDArray[np.float64] = np.where(np.isfinite(difference), difference, np.inf)
    return result


def agree(context: Context, ours: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return whether sketches [positions, WIDTH] are the same but for rounding, bool [positions]."""
    same: NDArray[np.bool_] = _relative(ours[:, None], others[:, None])[:, 0] <= _tolerance(context)
    return same


def _tolerance(context: Context) -> float:
    return sketch_tolerance(context.golden.document.target.num_layers, context.run.dtype, context.golden.document.dtype)


def sketch_tolerance(num_layers: int, *dtypes: str) -> float:
    """Return the greatest relative difference of a sketch that rounding makes.

    Args:
        num_layers: The target's decoder blocks.
        *dtypes: Those of golden and run; the coarser one counts.
    """
    return max(SKETCH_TOLERANCE[dtype] for dtype in dtypes) * math.sqrt(max(1.0, num_layers / _MEASURED_LAYERS))
