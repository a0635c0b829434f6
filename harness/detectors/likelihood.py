"""Likelihood: the draft's mean log-probability of the reference continuations, at fixed positions, paired by prompt.

It is a continuous figure at every position, so it sees a draft that has become less sure long before an argmax changes,
and its sign says whether the draft became worse or merely different.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.counts.own_rounds import comparable_logprobs
from harness.counts.run import PromptRecord
from harness.counts.statistics import PairedInterval, paired_mean
from harness.detectors.base import Context, Finding, Question, State

__all__ = ["LikelihoodFigures", "detect"]


@dataclass(frozen=True)
class LikelihoodFigures:
    """The draft's log-probability of the reference continuations, next to the golden's.

    Attributes:
        loss: The mean loss of log-probability, in nats a token, paired by prompt; positive if they became less likely.
        step_losses: The same for each draft step alone; `None` for a step without a position.
        evaluated: Positions and steps compared: those of the golden's fixed set.
        prompts: Number of prompts measured.
        noise_floor: The mean loss that rounding alone makes in the run's dtype, in nats a token; `None` if not known.
    """

    loss: PairedInterval
    step_losses: tuple[PairedInterval | None, ...]
    evaluated: int
    prompts: int
    noise_floor: float | None


def detect(context: Context) -> Finding[LikelihoodFigures]:
    """Compare the teacher-forced log-probability of the reference tokens, all steps together, and step by step."""
    rows = [
        _common(record, tensors.continuation, tensors.logprobs)
        for record, _, tensors in context.pairs()
        if record.logprobs is not None and tensors.logprobs is not None
    ]
    if not rows:
        return Finding(State.NOT_APPLICABLE, "this engine or golden does not have log-probabilities")
    # A loss and a gain are two questions with shares of one size.
    alpha = context.share(Question.LIKELIHOOD_LOW)
    overall = paired_mean(*_losses(rows, slice(None)), alpha)
    if overall is None:
        return Finding(State.NOT_MEASURED, "no position of the golden's set was measured")
    noise = context.noise
    figures = LikelihoodFigures(
        loss=overall,
        step_losses=_step_losses(rows, alpha),
        evaluated=int(sum(np.isfinite(golden).sum() for _, golden in rows)),
        prompts=overall.prompts,
        noise_floor=None if noise is None else noise.likelihood * context.noise_factor,
    )
    # Reported as a change, so that a loss is negative. Taken from 0.0, so that no change is not shown as minus zero.
    change, low, high = 0.0 - overall.estimate, 0.0 - overall.high, 0.0 - overall.low
    text = f"{change:+.4f} nats a token [{low:+.4f}, {high:+.4f}]"
    if not np.isfinite(overall.estimate):
        return Finding(State.CHANGED, "the draft's log-probabilities are not finite", figures)
    if noise is None:
        return Finding(State.NOT_APPLICABLE, f"{text}; the noise floor of {context.run.dtype} is not known", figures)
    floor = noise.likelihood * context.noise_factor
    # The whole interval must be beyond the noise floor: rounding can shift every prompt the same way, and an interval
    # over prompts does not show that.
    if overall.low > floor:
        return Finding(State.CHANGED, f"{text}: the draft finds the reference continuations less likely", figures)
    if overall.high < -floor:
        text = f"{text}: the draft finds the reference continuations likelier; re-record the golden"
        return Finding(State.CHANGED, text, figures)
    if abs(overall.estimate) <= floor:
        text = f"unchanged ({text}, rounding up to {floor:.1e})"
    return Finding(State.PASS, text, figures)


def _common(
    record: PromptRecord, text: NDArray[np.int32], golden: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return a run's log-probabilities and the golden's, each [n, k].

    The golden's are NaN where ours were not asked.
    """
    assert record.logprobs is not None
    known = comparable_logprobs(record, text, len(golden))
    ours = np.full_like(golden, np.nan)
    count = min(len(golden), len(record.logprobs))
    ours[:count] = record.logprobs[:count]
    return ours, np.where(known, golden, np.float32("nan"))


def _losses(rows: list[tuple[np.ndarray, np.ndarray]], step: int | slice) -> tuple[list[float], list[int]]:
    """Return each prompt's summed loss of log-probability over the golden's positions, and how many there are.

    The golden's own finite values are the fixed set: a run that computed a NaN at one of these positions must not leave
    it out.
    """
    losses, counts = [], []
    for ours, golden in rows:
        chosen = np.isfinite(golden[:, step])
        losses.append(float((golden[:, step][chosen].astype(np.float64) - ours[:, step][chosen]).sum()))
        counts.append(int(chosen.sum()))
    return losses, counts


def _step_losses(rows: list[tuple[np.ndarray, np.ndarray]], alpha: float) -> tuple[PairedInterval | None, ...]:
    """Return each step's mean loss with its bounds; only that of all steps together decides."""
    return tuple(paired_mean(*_losses(rows, step), alpha) for step in range(rows[0][1].shape[1]))
