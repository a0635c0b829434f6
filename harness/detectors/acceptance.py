"""Acceptance: the drop from the golden, paired by prompt, and the floor."""

from __future__ import annotations

from typing import Any

from harness.acceptance import PromptCounts, counts_of
from harness.detectors.base import Context, Finding, State
from harness.statistics import Interval, paired_drop, prompts_needed, rate_interval

__all__ = ["detect", "effective_floor", "judge_drop", "judge_floor"]


def detect(context: Context) -> Finding:
    """Judge the drop of the acceptance rate against the margin, and the rate against the floor."""
    now = [counts_of(record) for record in context.run.records]
    golden = [prompt.counts() for _, prompt, _ in context.pairs()]
    drop = paired_drop(_columns(golden), _columns(now), context.alpha)
    rate = rate_interval(*_columns(now), context.alpha)
    if drop is None or rate is None:
        return Finding(State.NOT_MEASURED, "no verify round was measured")
    gate = context.pair.settings.gate
    floor = effective_floor(context)
    identical = all(ours.histogram == theirs.histogram for ours, theirs in zip(now, golden, strict=True))
    drop_state = State.PASS if identical else judge_drop(drop, gate.margin)
    # Identical counts pass at once: the golden was recorded clear of its floor, on all of its prompts.
    recorded_clear = identical and floor <= context.golden.document.floor
    floor_state = State.PASS if recorded_clear else judge_floor(rate, floor)
    needed = prompts_needed(drop, gate.margin) if drop_state is State.INCONCLUSIVE else None
    figures: dict[str, Any] = {
        "rate": rate.to_dict(),
        "drop": drop.to_dict(),
        "length_drop": _length_drop(golden, now, context.alpha),
        "margin": gate.margin,
        "floor": floor,
        "drop_verdict": str(drop_state),
        "floor_verdict": str(floor_state),
        "changed_prompts": drop.changed,
        "prompts": drop.prompts,
        "prompts_needed": needed,
    }
    order = (State.REGRESSION, State.INCONCLUSIVE, State.PASS)
    state = next(state for state in order if state in (drop_state, floor_state))
    return Finding(state, _message(drop, rate, floor, drop_state, floor_state, needed), figures)


def effective_floor(context: Context) -> float:
    """Return the floor that holds: a pair file cannot lower the one that was recorded."""
    return max(context.pair.settings.gate.floor, context.golden.document.floor)


def judge_drop(drop: Interval, margin: float) -> State:
    """Judge a drop: within the margin, a loss beyond chance, or undecided."""
    if drop.high < margin:
        return State.PASS
    return State.REGRESSION if drop.low > 0 else State.INCONCLUSIVE


def judge_floor(rate: Interval, floor: float) -> State:
    """Judge a rate against its floor: wholly below, wholly at or above, or straddling."""
    if rate.high < floor:
        return State.REGRESSION
    return State.PASS if rate.low >= floor else State.INCONCLUSIVE


def _columns(counts: list[PromptCounts]) -> tuple[list[float], list[float]]:
    return [count.accepted for count in counts], [count.proposed for count in counts]


def _length_drop(golden: list[PromptCounts], now: list[PromptCounts], alpha: float) -> dict[str, Any] | None:
    """Return the drop in acceptance length; the bonus token cancels out."""
    columns = [([count.accepted for count in side], [count.rounds for count in side]) for side in (golden, now)]
    drop = paired_drop(columns[0], columns[1], alpha)
    return None if drop is None else drop.to_dict()


def _message(
    drop: Interval, rate: Interval, floor: float, drop_state: State, floor_state: State, needed: int | None
) -> str:
    text = f"rate {rate.estimate:.4f}, drop {drop.estimate:+.4f} [{drop.low:+.4f}, {drop.high:+.4f}]"
    if floor_state is State.REGRESSION:
        return f"{text}; below the floor {floor:.2f}"
    if drop_state is State.REGRESSION:
        return f"{text}; a loss beyond chance"
    if floor_state is State.INCONCLUSIVE:
        return f"{text}; the interval [{rate.low:.4f}, {rate.high:.4f}] straddles the floor {floor:.2f}"
    if drop_state is State.INCONCLUSIVE:
        return text + (f"; about {needed} prompts would decide" if needed else "; no number of prompts would decide")
    return text
