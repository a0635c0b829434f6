"""The verdict over all detectors, and the exit status that follows from it."""

from __future__ import annotations

from collections.abc import Iterable

from harness.detectors.base import State

__all__ = ["UNDECIDED", "exit_code", "is_failure", "verdict"]

_ORDER = (State.REGRESSION, State.CHANGED, State.NOT_MEASURED, State.INCONCLUSIVE, State.PASS)
UNDECIDED = frozenset({State.NOT_MEASURED, State.INCONCLUSIVE})
"""The states of a detector that applies and could not decide."""


def verdict(states: Iterable[State]) -> State:
    """Return the verdict over detectors' states: what is proven outranks what is undecided.

    Args:
        states: One for each detector; `not_applicable` never counts.
    """
    present = set(states)
    # A pair that no detector applies to was not measured: that is never a pass.
    return next((state for state in _ORDER if state in present), State.NOT_MEASURED)


def exit_code(states: Iterable[State], *, strict: bool) -> int:
    """Return the command line's status: 0 fine, 1 bad, 3 if a detector could not decide or nothing was measured.

    A change of a pair that is not strict is a warning. Next to a detector that could not decide, it is not known to be
    one, and the status says so.

    Args:
        states: One for each detector.
        strict: Whether a change without a loss of acceptance fails.
    """
    present = set(states)
    state = verdict(present)
    if state is State.REGRESSION or (state is State.CHANGED and strict):
        return 1
    return 3 if present & UNDECIDED or state in UNDECIDED else 0


def is_failure(state: State, status: int) -> bool:
    """Return whether the test of one detector fails.

    Every detector that found a change fails if the check as a whole does not pass. Otherwise the only test that fails
    could be one that is undecided, while the one that names the cause passes.

    Args:
        state: What the detector found.
        status: The exit status of the whole check.
    """
    return state is State.REGRESSION or state in UNDECIDED or (state is State.CHANGED and status != 0)
