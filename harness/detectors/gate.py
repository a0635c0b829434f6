"""The verdict over all detectors, and the exit status that follows from them."""

from __future__ import annotations

from collections.abc import Iterable

from harness.detectors.base import State

__all__ = ["UNDECIDED", "exit_code", "is_failure", "verdict"]

# What is proven outranks what is undecided: a detector that proved a change is not silenced by one that could not tell.
_ORDER = (State.REGRESSION, State.CHANGED, State.NOT_MEASURED, State.INCONCLUSIVE, State.PASS)
UNDECIDED = frozenset({State.NOT_MEASURED, State.INCONCLUSIVE})
"""The states of a detector that applies and could not decide."""


def verdict(states: Iterable[State]) -> State:
    """Return the verdict over detectors' states: the first that is present, what is proven before what is undecided.

    Args:
        states: One for each detector; `not_applicable` never counts.
    """
    present = set(states)
    # A pair that no detector applies to was not measured: that is never a pass.
    return next((state for state in _ORDER if state in present), State.NOT_MEASURED)


def exit_code(states: Iterable[State], *, strict: bool) -> int:
    """Return the command line's status: 0 fine, 1 bad, 3 inconclusive or not measured.

    Args:
        states: One for each detector.
        strict: Whether a change without a loss of acceptance fails. If it does not, it is a warning, and what is
            undecided beside it decides the status.
    """
    present = set(states)
    found = verdict(present)
    if found is State.REGRESSION or (found is State.CHANGED and strict):
        return 1
    return 3 if found in UNDECIDED or (found is State.CHANGED and present & UNDECIDED) else 0


def is_failure(state: State, status: int) -> bool:
    """Return whether one detector's test fails.

    Every detector that found a change fails if the check as a whole does not pass. Else the only test that fails could
    be one that is undecided, while the one that knows the cause passes.

    Args:
        state: What the detector found.
        status: The exit status of the whole check.
    """
    return state is State.REGRESSION or state in UNDECIDED or (state is State.CHANGED and status != 0)
