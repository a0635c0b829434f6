"""The verdict over all detectors, and the exit status that follows from it."""

from __future__ import annotations

from collections.abc import Iterable

from harness.detectors.base import State

__all__ = ["exit_code", "verdict"]


def verdict(states: Iterable[State], *, strict: bool) -> State:
    """Return the verdict over detectors' states.

    What is proven outranks what is undecided. A change comes late if the pair is not strict: it is then only a warning,
    and a detector that could not decide matters more.

    Args:
        states: One for each detector; `not_applicable` never counts.
        strict: Whether a change without a loss of acceptance fails.
    """
    present = set(states)
    order = [State.REGRESSION]
    if strict:
        order.append(State.CHANGED)
    order += [State.NOT_MEASURED, State.INCONCLUSIVE, State.CHANGED, State.PASS]
    # A pair that no detector applies to was not measured: that is never a pass.
    return next((state for state in order if state in present), State.NOT_MEASURED)


def exit_code(state: State, *, strict: bool) -> int:
    """Return the command line's status for a verdict: 0 fine, 1 bad, 3 inconclusive or not measured."""
    if state is State.REGRESSION or (state is State.CHANGED and strict):
        return 1
    return 3 if state in (State.INCONCLUSIVE, State.NOT_MEASURED) else 0
