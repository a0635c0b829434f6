"""A class whose forward did not run."""

from __future__ import annotations

from harness.conformance import forward
from harness.conformance.asked import asked_lists


def test_a_class_that_does_not_run_says_why() -> None:
    answer = forward.run_forwards("KimiK25ForConditionalGeneration", asked_lists())
    assert answer.outcomes == {}
    assert "no tiny target" in str(answer.reason)
