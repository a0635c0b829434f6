"""Planted losses are as great as asked for, and the gate's power on them is what it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.commands.power import Plan, plant, power_table, refusal_for
from harness.counts.acceptance import PromptCounts
from harness.errors import InputError
from harness.golden.store import load_golden
from suites.support.builtin_pairs import ROOT
from suites.support.command import Command


@pytest.fixture(scope="module")
def recorded() -> list[PromptCounts]:
    golden = load_golden(ROOT / "golden/tiny/reference-cpu-float32.json")
    return [prompt.counts() for prompt in golden.document.prompts]


def _histograms(recorded: list[PromptCounts]) -> np.ndarray:
    return np.array([counts.histogram for counts in recorded])


def _rate(histograms: np.ndarray) -> float:
    k = histograms.shape[-1] - 1
    return float((histograms * np.arange(k + 1)).sum() / (k * histograms.sum()))


@pytest.mark.parametrize("drop", [0.01, 0.02, 0.05, 0.3])
def test_a_planted_drop_is_as_great_as_asked_for_and_the_text_as_long(
    recorded: list[PromptCounts], drop: float
) -> None:
    histograms = _histograms(recorded)
    generator = np.random.default_rng(1)
    refusal = refusal_for(histograms, drop)
    planted = [plant(histograms, refusal, generator) for _ in range(60)]
    assert _rate(histograms) - np.mean([_rate(one) for one in planted]) == pytest.approx(drop, rel=0.06)
    tokens = np.arange(histograms.shape[1]) + 1
    lengths = [(one * tokens).sum() for one in planted]
    assert np.mean(lengths) == pytest.approx((histograms * tokens).sum(), rel=0.01)
    assert all((one >= 0).all() for one in planted)


def test_nothing_planted_changes_nothing(recorded: list[PromptCounts]) -> None:
    histograms = _histograms(recorded)
    assert (plant(histograms, 0.0, np.random.default_rng(0)) == histograms).all()
    assert refusal_for(histograms, 0.0) == pytest.approx(0, abs=1e-9)
    empty = np.zeros((3, 5), np.int64)
    assert (plant(empty, 0.5, np.random.default_rng(0)) == 0).all()


def test_a_drop_below_zero_acceptance_is_refused(recorded: list[PromptCounts]) -> None:
    with pytest.raises(InputError, match="--drop: the drop is out of range"):
        refusal_for(_histograms(recorded), 0.9)


def test_power_grows_with_drop_and_prompts_and_two_points_are_sure(recorded: list[PromptCounts]) -> None:
    """The shipped prompts find a drop of two points in 99 of 100 comparisons or more."""
    plan = Plan(recorded, margin=0.01, floor=0.7, alpha=0.001, simulations=300)
    table = power_table(plan, [0.005, 0.02, 0.05], [24, len(recorded)], power=0.99, most_prompts=256)
    power = {(cell.drop, cell.prompts): cell.power for cell in table.cells}
    own = len(recorded)
    assert power[0.02, own] >= 0.99
    assert power[0.05, own] == 1
    assert power[0.02, 24] < power[0.05, 24]
    assert power[0.02, 24] < power[0.02, own]
    assert table.smallest is not None
    assert 0.005 < table.smallest <= 0.02
    assert table.needed[0.005] is None
    assert table.needed[0.05] is not None
    assert table.needed[0.02] is not None
    assert table.needed[0.05] < table.needed[0.02] <= own


def test_a_gate_that_never_fires_has_no_power(recorded: list[PromptCounts]) -> None:
    plan = Plan(recorded, margin=0.5, floor=0.0, alpha=0.001, simulations=100)
    table = power_table(plan, [0.02], [48], power=0.99, most_prompts=64)
    assert table.cells[0].found == table.cells[0].undecided == 0
    assert table.smallest is None


def test_power_on_the_command_line(harness: Command, tmp_path: Path) -> None:
    options = ("--drop", 0.05, "--prompts", 48, "--simulations", 100)
    outcome = harness("power", "tiny", *options, "--json", "--plot", tmp_path / "power.png")
    assert outcome.status == 0
    (cell,) = outcome.json["cells"]
    assert cell == {
        "drop": 0.05,
        "prompts": 48,
        "simulations": 100,
        "power": pytest.approx(1.0, abs=0.05),
        "standard_error": pytest.approx(0.0, abs=0.03),
        "inconclusive": pytest.approx(0.0, abs=0.05),
    }
    assert (tmp_path / "power.png").read_bytes().startswith(b"\x89PNG")
    text = harness("power", "tiny", *options).out
    assert "prompts that find a drop of 5 points in 99%: about" in text
    assert harness("power", "tiny", *options, "--json").out == harness("power", "tiny", *options, "--json").out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--drop", "0.9"), "the drop is out of range"),
        (("--drop", "-0.1"), "the drop is out of range"),
        (("--drop", "nan"), "the drop is out of range"),
        (("--plot", "power.gif"), "suffix is not supported"),
        (("--prompts", "1"), "--prompts"),
    ],
)
def test_bad_options_are_told(harness: Command, options: tuple[str, ...], says: str) -> None:
    outcome = harness("power", "tiny", *options)
    assert outcome.status == 2
    assert says in outcome.err
    assert "Traceback" not in outcome.err
