"""The verdict over all detectors, and the exit status that follows from it."""

from __future__ import annotations

from collections.abc import Iterable

from harness.detectors.base import State

__all__ = ["exit_code", "verdict"]


def verdict(states: Iterable[State], *, strict: bool) -> State:
    """Return the verdict over detectors' states.

    Args:
        states: The states. `not_applicable` never counts.
        strict: Whether a change without a loss of acceptance fails.
    """
    present = set(states)
    order = [State.REGRESSION]
    if strict:
        order.append(State.CHANGED)
    order += [State.NOT_MEASURED, State.INCONCLUSIVE, State.CHANGED, State.PASS]
    return next((state for state in order if state in present), State.NOT_MEASURED)


def exit_code(state: State, *, strict: bool) -> int:
    """Return the command line's status for a verdict: 0 fine, 1 bad, 3 inconclusive or not measured."""
    if state is State.REGRESSION or (state is State.CHANGED and strict):
        return 1
    return 3 if state in (State.INCONCLUSIVE, State.NOT_MEASURED) else 0
