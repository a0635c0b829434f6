"""Acceptance: the drop from the golden, paired by prompt, and the floor.

A drop passes if its interval excludes a loss as large as the margin. It is a regression if its interval excludes zero
and not the margin. An interval that has both is too wide to decide; the finding then says how many prompts would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.counts.acceptance import (
    Figure,
    PromptCounts,
    acceptance_of,
    columns,
    counts_of,
    figures,
    greatest,
    run_columns,
)
from harness.counts.statistics import (
    Interval,
    PairedInterval,
    mean_columns,
    paired_drop,
    prompts_needed,
    prompts_to_clear,
    rate_interval,
    subset_rate,
)
from harness.detectors.base import Context, Finding, Question, State, share_of
from harness.golden.store import Golden
from harness.pair.pair import Pair

__all__ = [
    "AcceptanceFigures",
    "Judgement",
    "SumsFigures",
    "detect",
    "effective_floor",
    "judge_counts",
    "judge_drop",
    "judge_floor",
]


@dataclass(frozen=True)
class AcceptanceFigures:
    """The acceptance rate next to the golden's and to the floor.

    Attributes:
        estimated_rate: The acceptance rate over all recorded prompts, 0 to 1, estimated from those that were run. If
            all were run it is the measured rate.
        drop: How far the rate has dropped on the prompts that were run, paired by prompt; positive for a loss.
        drops: The same by figure: `rate`, `length` in tokens a round, position rates `u0`, `c0` … and step accuracy
            `t0` …; `None` if a side did not measure it. Only that of the rate decides.
        margin: The drop of the rate that does not matter.
        floor: The rate that must not be fallen below.
        drop_verdict: The drop against the margin.
        floor_verdict: The estimated rate against the floor.
        changed_prompts: Number of prompts whose counts of accepted or proposed tokens differ from the golden's.
        prompts: Number of prompts measured.
        prompts_needed: About how many prompts would decide an undecided question; `None` if nothing is undecided, or if
            no number would decide it.
    """

    estimated_rate: Interval
    drop: PairedInterval
    drops: Mapping[str, PairedInterval | None]
    margin: float
    floor: float
    drop_verdict: State
    floor_verdict: State
    changed_prompts: int
    prompts: int
    prompts_needed: int | None


@dataclass(frozen=True)
class SumsFigures:
    """The acceptance rate of an engine that knows only sums over all prompts, next to the floor.

    Attributes:
        estimated_rate: The measured acceptance rate, 0 to 1, with bounds from how far the golden's prompts differ.
        golden_rate: The recorded rate of the same prompts.
        floor: The rate that must not be fallen below.
        floor_verdict: The rate against the floor.
        prompts: Number of prompts measured.
        prompts_needed: About how many prompts would decide an undecided floor; `None` if it is decided, or if no number
            would decide it.
    """

    estimated_rate: Interval
    golden_rate: float
    floor: float
    floor_verdict: State
    prompts: int
    prompts_needed: int | None


@dataclass(frozen=True)
class Judgement:
    """What the counts alone say.

    Attributes:
        rate: The acceptance rate over all of the golden's prompts, estimated from those that were run.
        drop: How far the rate has dropped on those that were run.
        drop_state: The drop against the margin.
        floor_state: The rate against the floor.
        needed: About how many prompts would decide what is undecided; `None` if nothing is, or if no number would.
    """

    rate: Interval
    drop: PairedInterval
    drop_state: State
    floor_state: State
    needed: int | None

    @property
    def state(self) -> State:
        """The worse state of the two."""
        order = (State.REGRESSION, State.INCONCLUSIVE, State.PASS)
        return next(state for state in order if state in (self.drop_state, self.floor_state))


def judge_counts(
    recorded: Sequence[PromptCounts],
    golden: Sequence[PromptCounts],
    now: Sequence[PromptCounts],
    *,
    margin: float,
    floor: float,
    clear_of_floor: bool,
    alpha: float,
) -> Judgement | None:
    """Judge counts against recorded ones.

    Args:
        recorded: The golden's counts of all of its prompts.
        golden: The golden's counts of the prompts that were run.
        now: The run's counts of the same prompts, in the same order.
        margin: A drop that does not matter.
        floor: The rate that must not be fallen below.
        clear_of_floor: Whether the recorded rate is known to be above this floor.
        alpha: Chance of a false alarm of the whole verdict, of which drop and floor have their shares.

    Returns:
        The judgement, `None` if no verify round was measured.
    """
    before, *again = run_columns(golden, _RATE)
    whole, after = mean_columns(run_columns(recorded, _RATE)), columns(now, _RATE)
    drop = paired_drop(before, after, share_of(alpha, Question.DROP), again)
    rate = subset_rate(whole, mean_columns((before, *again)), after, share_of(alpha, Question.FLOOR))
    if drop is None or rate is None:
        return None
    # Identical counts pass at once: recording has already judged them. A few prompts whose interval is wide would
    # otherwise be undecided about a rate that has not moved.
    identical = all(ours.histogram == theirs.histogram for ours, theirs in zip(now, golden, strict=True))
    drop_state = State.PASS if identical else judge_drop(drop, margin)
    floor_state = State.PASS if identical and clear_of_floor else judge_floor(rate, floor)
    undecided = []
    if drop_state is State.INCONCLUSIVE:
        undecided.append(prompts_needed(drop, margin))
    if floor_state is State.INCONCLUSIVE:
        undecided.append(prompts_to_clear(rate, floor))
    known = [count for count in undecided if count is not None]
    # If no number of prompts decides one question, none decides both.
    needed = max(known) if known and len(known) == len(undecided) else None
    return Judgement(rate, drop, drop_state, floor_state, needed)


def _drop(
    golden: Sequence[PromptCounts], now: Sequence[PromptCounts], name: str, figure: Figure, context: Context
) -> PairedInterval | None:
    before, *again = run_columns(golden, figure)
    most = greatest(name, context.run.num_steps)
    return paired_drop(before, columns(now, figure), context.share(Question.DROP), again, most=most)


_RATE = figures(1)["rate"]


def detect(context: Context) -> Finding[AcceptanceFigures | SumsFigures]:
    """Judge the drop of the acceptance rate against the margin, and the rate against the floor.

    Only the floor is judged if the engine knows nothing but sums over all prompts.
    """
    if context.run.aggregate is not None:
        return _detect_sums(context)
    now = [counts_of(record) for record in context.run.records]
    golden = [prompt.counts() for _, prompt, _ in context.pairs()]
    document, gate, floor = (
        context.golden.document,
        context.pair.settings.gate,
        effective_floor(context.pair, context.golden),
    )
    judgement = judge_counts(
        [prompt.counts() for prompt in document.prompts],
        golden,
        now,
        margin=gate.margin,
        floor=floor,
        clear_of_floor=floor <= document.floor,
        alpha=gate.alpha,
    )
    if judgement is None:
        return Finding(State.NOT_MEASURED, "no verify round was measured")
    drop = judgement.drop
    detail = AcceptanceFigures(
        estimated_rate=judgement.rate,
        drop=drop,
        drops={
            name: _drop(golden, now, name, figure, context) for name, figure in figures(context.run.num_steps).items()
        },
        margin=gate.margin,
        floor=floor,
        drop_verdict=judgement.drop_state,
        floor_verdict=judgement.floor_state,
        changed_prompts=drop.changed_prompts,
        prompts=drop.prompts,
        prompts_needed=judgement.needed,
    )
    # A rise within the margin is not worth a new golden, and one that chance explains is not known to be one.
    stale = drop.high < 0 and drop.estimate < -gate.margin
    notes = (f"acceptance has risen by {-drop.estimate:.4f}: the golden is stale, re-record it",) if stale else ()
    whole = len(document.prompts) if len(now) < len(document.prompts) else None
    return Finding(judgement.state, _message(judgement, floor, whole), detail, notes)


def _detect_sums(context: Context) -> Finding[AcceptanceFigures | SumsFigures]:
    """Judge sums over all prompts against the floor.

    Sums do not show how far prompts differ, so the golden's own interval of the same prompts is moved to the measured
    rate. That is an assumption: a fault that makes prompts differ more has wider bounds than these.
    """
    acceptance, floor = acceptance_of(context.run), effective_floor(context.pair, context.golden)
    counts = [prompt.counts() for _, prompt, _ in context.pairs()]
    recorded = rate_interval(*mean_columns(run_columns(counts, _RATE)), context.share(Question.FLOOR))
    if acceptance.rate is None or recorded is None:
        return Finding(State.NOT_MEASURED, "no verify round was measured")
    # Distances and not bounds: the golden's interval need not be symmetric, since it ends at 0 and 1.
    low = max(0.0, acceptance.rate - (recorded.estimate - recorded.low))
    high = min(1.0, acceptance.rate + (recorded.high - recorded.estimate))
    rate = replace(recorded, estimate=acceptance.rate, low=low, high=high)
    state = judge_floor(rate, floor)
    needed = prompts_to_clear(rate, floor) if state is State.INCONCLUSIVE else None
    figures = SumsFigures(
        estimated_rate=rate,
        golden_rate=recorded.estimate,
        floor=floor,
        floor_verdict=state,
        prompts=rate.prompts,
        prompts_needed=needed,
    )
    text = (
        f"rate {rate.estimate:.4f}, golden {recorded.estimate:.4f}; sums over all prompts: the floor {floor:.2f} alone "
        f"is judged, by [{rate.low:.4f}, {rate.high:.4f}] with the golden's spread of prompts"
    )
    if state is State.INCONCLUSIVE:
        text += _would_decide(needed, rate.prompts)
    return Finding(state, text, figures)


def effective_floor(pair: Pair, golden: Golden) -> float:
    """Return the floor in force: a pair file cannot lower the one that was recorded."""
    return max(pair.settings.gate.floor, golden.document.floor)


def judge_drop(drop: Interval, margin: float) -> State:
    """Judge a drop: within the margin, a loss beyond chance, or undecided.

    A loss that is certain and certainly smaller than the margin passes: it is real and does not matter.
    """
    if drop.high < margin:
        return State.PASS
    return State.REGRESSION if drop.low > 0 else State.INCONCLUSIVE


def judge_floor(rate: Interval, floor: float) -> State:
    """Judge a rate against its floor: wholly below, wholly at or above, or straddling."""
    if rate.high < floor:
        return State.REGRESSION
    return State.PASS if rate.low >= floor else State.INCONCLUSIVE


def _message(judgement: Judgement, floor: float, whole: int | None) -> str:
    """Return a judgement in words; `whole` is the number of recorded prompts if only some of them were run."""
    rate, drop, needed = judgement.rate, judgement.drop, judgement.needed
    estimated = "" if whole is None else f" estimated for all {whole} prompts"
    text = f"rate {rate.estimate:.4f}{estimated}, drop {drop.estimate:+.4f} [{drop.low:+.4f}, {drop.high:+.4f}]"
    if judgement.floor_state is State.REGRESSION:
        return f"{text}; below the floor {floor:.2f}"
    if judgement.drop_state is State.REGRESSION:
        return f"{text}; a loss beyond chance"
    if judgement.state is not State.INCONCLUSIVE:
        return text
    if judgement.floor_state is State.INCONCLUSIVE:
        text += f"; the interval [{rate.low:.4f}, {rate.high:.4f}] straddles the floor {floor:.2f}"
    return text + _would_decide(needed, drop.prompts)


def _would_decide(needed: int | None, prompts: int) -> str:
    if needed is not None:
        return f"; about {needed} prompts would decide"
    return "; one prompt does not show how far prompts differ" if prompts < 2 else "; no number of prompts would decide"
