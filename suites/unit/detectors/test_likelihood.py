"""The `likelihood` detector: a draft that is as often right, and less sure."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from harness.commands.check import check
from harness.commands.prepare import prepare
from suites.support.damage import edit_tensors
from suites.support.findings import states


def test_likelihood_sees_a_draft_that_is_as_often_right_but_less_sure(recorded: Path) -> None:
    def colder(tensors: dict[str, Tensor]) -> None:
        tensors["lm_head.weight"] *= 0.5

    before = recorded.parent / "prompts.jsonl"
    assert before.exists()
    edit_tensors(recorded.parent / "draft" / "model.safetensors", colder)
    result = check(prepare(recorded))
    # Scaling logits changes no argmax.
    assert states(result)["proposals"] == "pass"
    assert states(result)["acceptance"] == "pass"
    figures = result.findings.likelihood.measured
    assert figures.noise_floor is not None
    assert abs(figures.loss.estimate) > 100 * figures.noise_floor
