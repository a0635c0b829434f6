"""The `target` detector: a target that has changed since the golden was recorded, and near-ties that have not."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from harness.commands.check import CheckResult, check
from harness.commands.prepare import prepare
from harness.counts.run import Run, TargetCheck
from harness.counts.ties import NEAR_TIE
from harness.detectors.base import Context, Finding
from harness.detectors.target import TargetFigures, detect
from harness.golden.schema import Noise, NoiseArm
from harness.pair.pairfile import Dtype
from suites.support.damage import edit_tensors
from suites.support.findings import states

CLASSES = ["reference:replay", "reference:sequential", "sglang", "server:sglang"]


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


@pytest.fixture(scope="module")
def checked(recorded_folder: Path) -> CheckResult:
    return check(prepare(recorded_folder / "random.pair.toml"))


def _with_arms(context: Context, *arms: tuple[int, int]) -> Context:
    """The golden with noise of which each arm has positions that drifted, and positions evaluated."""
    noise = Noise(
        arms=[
            NoiseArm(how="", windows=1, changed=0, likelihood=0.0, drifted=drifted, evaluated=evaluated)
            for drifted, evaluated in arms or [(0, 0)]
        ]
    )
    document = context.golden.document.model_copy(update={"noise": {context.run.dtype: noise} if arms else {}})
    return replace(context, golden=replace(context.golden, document=document))


def _context(checked: CheckResult, gaps: list[float], golden_dtype: str = "float32", **run: str) -> Context:
    """The run, with a target that chooses other tokens at the first positions of the first prompt, so far away."""
    first, *others = checked.measurement.run.records
    assert first.target is not None
    agrees, distances = first.target.agrees.copy(), first.target.gaps.copy()
    agrees[: len(gaps)], distances[: len(gaps)] = False, gaps
    records = (replace(first, target=TargetCheck(agrees, distances)), *others)
    golden = replace(checked.golden, document=checked.golden.document.model_copy(update={"dtype": golden_dtype}))
    changes: dict[str, Any] = run
    ran: Run = replace(checked.measurement.run, records=records, **changes)
    return Context(checked.pair, ran, golden)


def _found(context: Context) -> tuple[str, TargetFigures]:
    finding: Finding[TargetFigures] = detect(context)
    return str(finding.state), finding.measured


@pytest.mark.parametrize("golden_dtype", get_args(Dtype))
@pytest.mark.parametrize("dtype", get_args(Dtype))
def test_a_gap_beyond_the_coarser_dtypes_near_tie_is_a_change_in_every_class(
    checked: CheckResult, golden_dtype: str, dtype: str
) -> None:
    coarser = max(NEAR_TIE[golden_dtype], NEAR_TIE[dtype])
    beyond = ((0.9, "pass"), (1.1, "changed"))
    for (factor, state), engine, device in itertools.product(beyond, CLASSES, ("cpu", "cuda")):
        context = _context(checked, [factor * coarser], golden_dtype, engine=engine, device=device, dtype=dtype)
        found, figures = _found(_with_arms(context))
        assert found == state
        assert figures.tolerance == coarser
        assert (figures.drifted, figures.near_ties) == ((1, 0) if state == "changed" else (0, 1))
        assert figures.decides == (state == "changed")
        assert figures.greatest_gap == pytest.approx(factor * coarser)


@pytest.mark.parametrize("gap", [float("nan"), float("inf")])
def test_a_gap_that_is_no_number_is_drift(checked: CheckResult, gap: float) -> None:
    assert _found(_context(checked, [gap], "bfloat16"))[0] == "changed"


@pytest.mark.parametrize(
    ("arms", "explained"),
    [
        ([], 0),
        ([(0, 500)], 0),
        # The worst arm's share, of all positions of the run.
        ([(0, 100), (1, 1), (0, 100)], 168),
        ([(1, 90)], 2),
        ([(0, 0)], 0),
    ],
)
def test_as_many_positions_as_the_worst_arm_drifted_at_are_explained(
    checked: CheckResult, arms: list[tuple[int, int]], explained: int
) -> None:
    gaps = [7.4] * 4
    context = _with_arms(_context(checked, gaps), *arms)
    found, figures = _found(context)
    assert figures.evaluated == sum(len(record.continuation) for record in context.run.records)
    assert (figures.drifted, figures.explained) == (4, explained)
    assert found == ("changed" if explained < 4 else "pass")
    assert figures.decides == (explained < 4)
