"""Which records no golden may be made of: a nearly dead position is as misleading as a wholly dead one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from harness.commands.worthy import DEAD, require_worthy
from harness.counts.run import PromptRecord, TargetCheck
from harness.errors import InputError
from harness.pair.pair import Pair
from harness.pair.pairfile import DecodeSettings, EngineSettings, GateSettings

STEPS = 3


def _pair() -> Pair:
    decode = DecodeSettings.model_validate({"num_steps": STEPS, "max_new_tokens": 64})
    gate = GateSettings.model_validate({"floor": 0.1})
    settings = SimpleNamespace(decode=decode, gate=gate, engine=EngineSettings())
    return cast(Pair, SimpleNamespace(settings=settings, file=Path("a.pair.toml")))


def _record(
    index: int, histogram: tuple[int, ...], right: tuple[int, ...] | None = None, asked: int = 500
) -> PromptRecord:
    """Return a record; `right` of `asked` positions of each step are right, teacher-forced."""
    correct = None
    if right is not None:
        correct = np.zeros((asked, STEPS), np.int8)
        for step, count in enumerate(right):
            correct[:count, step] = 1
    return PromptRecord(f"p{index}", "a", "h", 5, (1, 2, 3), None, histogram, correct=correct)


def _worthy(*records: PromptRecord) -> None:
    require_worthy(_pair(), records)


def test_a_sound_record_is_worthy() -> None:
    _worthy(*(_record(index, (10, 10, 20, 60), (400, 350, 300)) for index in range(10)))


@pytest.mark.parametrize("step", range(STEPS))
@pytest.mark.parametrize("right", [0, 1, 4])
def test_a_nearly_dead_position_is_refused(step: int, right: int) -> None:
    """Right at 0 to 0.8 % of positions: none that a draft which has learned anything is at."""
    counts = tuple(right if index == step else 300 for index in range(STEPS))
    with pytest.raises(InputError, match="a draft position is dead") as caught:
        _worthy(*(_record(index, (10, 10, 20, 60), counts) for index in range(10)))
    assert f"step {step}" in str(caught.value)
    assert f"{right * 10} of 5000 right" in str(caught.value)
    assert ("decode.num_steps = " in str(caught.value)) == (step > 0)


@pytest.mark.parametrize(("right", "worthy"), [(int(DEAD * 500) - 1, False), (int(DEAD * 500), True)])
def test_the_bound_is_where_it_is_said(right: int, worthy: bool) -> None:
    records: list[Any] = [_record(index, (10, 10, 20, 60), (300, 300, right)) for index in range(10)]
    if worthy:
        _worthy(*records)
        return
    with pytest.raises(InputError, match="dead"):
        _worthy(*records)


def test_rounds_judge_an_engine_without_teacher_forcing() -> None:
    """Step 2 is reached in 800 rounds, and right in 2 of them."""
    with pytest.raises(InputError, match="once the tokens before it are accepted"):
        _worthy(*(_record(index, (10, 10, 80, int(index < 2))) for index in range(10)))


def test_too_few_rounds_do_not_condemn_a_late_position() -> None:
    _worthy(*(_record(index, (10, 60, 20, 0)) for index in range(10)))


def _decoded(others: int, gap: float, length: int = 100) -> PromptRecord:
    """Return a record of a text of which the target chooses other tokens at some positions, by a gap."""
    agrees = np.arange(length) >= others
    check = TargetCheck(agrees, np.where(agrees, 0, gap).astype(np.float32))
    return replace(_record(0, (10, 10, 20, 60), (400, 350, 300)), target=check)


@pytest.mark.parametrize(
    ("others", "length", "worthy"), [(5, 100, True), (6, 100, False), (2, 20, True), (3, 20, False)]
)
def test_a_text_that_the_target_does_not_choose_is_refused(others: int, length: int, worthy: bool) -> None:
    sound = [_record(index, (10, 10, 20, 60), (400, 350, 300)) for index in range(1, 10)]
    record = _decoded(others, 0.1, length)
    if worthy:
        _worthy(record, *sound)
        return
    with pytest.raises(InputError, match=f"p0: .* chooses other tokens .*{others} of {length} positions"):
        _worthy(record, *sound)


@pytest.mark.parametrize("gap", [float("nan"), float("inf")])
def test_a_gap_that_is_no_number_is_no_near_tie(gap: float) -> None:
    with pytest.raises(InputError, match="chooses other tokens"):
        _worthy(_decoded(20, gap), *(_record(index, (10, 10, 20, 60), (400, 350, 300)) for index in range(1, 10)))


def test_near_ties_do_not_spoil_a_text() -> None:
    _worthy(_decoded(50, 5e-4), *(_record(index, (10, 10, 20, 60), (400, 350, 300)) for index in range(1, 10)))
