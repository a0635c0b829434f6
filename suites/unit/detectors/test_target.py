"""The `target` detector: a target that has changed since the golden was recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from harness.commands.check import check
from harness.commands.prepare import prepare
from harness.counts.run import TargetCheck
from harness.counts.ties import NEAR_TIE
from harness.detectors import Context, target
from harness.detectors.target import TargetFigures
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


def _with_gap(recorded: Path, gap: float, *, dtype: str = "float32", golden: str | None = None) -> TargetFigures:
    """Return what the detector finds if one reference token is so far below the target's own choice."""
    result = check(prepare(recorded, dtype=dtype))
    document = result.golden.document
    # Without noise, by which a random pair's near-ties explain some drift themselves.
    document = document.model_copy(update={"dtype": golden or document.dtype, "noise": {}})
    first, *others = result.measurement.run.records
    assert first.target is not None
    agrees, gaps = np.ones_like(first.target.agrees), np.zeros_like(first.target.gaps)
    agrees[3], gaps[3] = False, gap
    rest = [replace(record, target=None) for record in others]
    run = replace(result.measurement.run, records=(replace(first, target=TargetCheck(agrees, gaps)), *rest))
    return target.detect(Context(result.pair, run, replace(result.golden, document=document))).measured


@pytest.mark.parametrize(
    ("dtype", "golden", "gap", "decides"),
    [
        ("float32", "float32", 5e-4, False),
        ("float32", "float32", 0.2, True),
        # The coarser of the two: a bfloat16 golden cannot place a near-tie any better for a float32 run.
        ("float32", "bfloat16", 0.2, False),
        ("bfloat16", "float32", 0.2, False),
        ("bfloat16", "bfloat16", 0.2, False),
        # No rounding makes as much, on any class.
        ("float32", "bfloat16", 7.4, True),
        ("bfloat16", "float32", 7.4, True),
    ],
)
def test_a_gap_beyond_the_coarser_dtypes_near_ties_is_a_change_in_every_class(
    recorded: Path, dtype: str, golden: str, gap: float, decides: bool
) -> None:
    figures = _with_gap(recorded, gap, dtype=dtype, golden=golden)
    assert figures.tolerance == max(NEAR_TIE[dtype], NEAR_TIE[golden])
    assert (figures.drifted, figures.near_ties) == ((1, 0) if decides else (0, 1))
    assert (figures.decides, figures.explained) == (decides, 0)
