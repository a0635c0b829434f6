"""The `target` detector: a target that has changed since the golden was recorded."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from harness.commands.check import check
from harness.commands.prepare import prepare
from suites.support.damage import edit_tensors
from suites.support.findings import states


def test_target_says_first_that_the_target_itself_has_changed(recorded: Path) -> None:
    def other_head(tensors: dict[str, Tensor]) -> None:
        generator = torch.Generator().manual_seed(1)
        head = tensors["lm_head.weight"]
        tensors["lm_head.weight"] = head + 0.3 * head.std() * torch.randn(head.shape, generator=generator)

    edit_tensors(recorded.parent / "target" / "model.safetensors", other_head)
    result = check(prepare(recorded))
    assert states(result)["target"] == "changed"
    assert result.findings.target.measured.drifted > 0
    assert "target drift" in result.findings["target"].message
    # The states are what they were: the head is past every boundary, and the draft has its own.
    assert states(result)["proposals"] == "pass"
    assert result.findings.target.measured.decides is True
