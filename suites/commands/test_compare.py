"""`harness compare`: two pairs, engines or results, paired by prompt."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from harness.commands.compare import Outcome, Side, compare
from harness.counts.acceptance import PromptCounts
from harness.errors import InputError
from suites.support.command import Command
from suites.support.random_pair import write_draft


def _side(label: str, rates: list[float], seed: int = 0, rounds: int = 400) -> Side:
    generator = np.random.default_rng(seed)
    counts = {}
    for index, rate in enumerate(rates):
        accepted = int(generator.binomial(rounds, rate))
        counts[f"p{index}"] = PromptCounts(f"p{index}", (rounds - accepted, accepted))
    return Side(label, counts, {name: name for name in counts})


RATES = [0.7 + 0.002 * index for index in range(96)]


def test_the_better_side_is_named_whichever_comes_first() -> None:
    good, bad = _side("good", RATES), _side("bad", [rate - 0.1 for rate in RATES], seed=1)
    worse, better = compare(good, bad, margin=0.01, alpha=0.001), compare(bad, good, margin=0.01, alpha=0.001)
    assert (worse.outcome, worse.better, worse.exit_code) == (Outcome.WORSE, "good", 1)
    assert (better.outcome, better.better, better.exit_code) == (Outcome.BETTER, "good", 0)
    drop = worse.drops["rate"]
    assert drop is not None
    assert drop.low < 0.1 < drop.high


def test_no_difference_and_not_enough_prompts() -> None:
    one = _side("one", RATES)
    same = compare(one, one, margin=0.01, alpha=0.001)
    assert (same.outcome, same.better, same.exit_code) == (Outcome.SAME, None, 0)
    few = compare(_side("a", RATES[:4]), _side("b", RATES[:4], seed=1), margin=0.01, alpha=0.001)
    assert (few.outcome, few.exit_code) == (Outcome.INCONCLUSIVE, 3)
    assert few.needed is not None
    assert few.needed > 4


def test_nothing_measured_says_so() -> None:
    empty = Side("empty", {"p": PromptCounts("p", (0, 0))}, {"p": "h"})
    assert compare(empty, empty, margin=0.01, alpha=0.001).exit_code == 3


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Side("b", {"x": PromptCounts("x", (1, 2))}, {"x": "x"}), "no prompt in common"),
        (Side("b", {"p0": PromptCounts("p0", (1, 2))}, {"p0": "other"}), "different prompts under one id"),
        (Side("b", {"p0": PromptCounts("p0", (1, 2, 3))}, {"p0": "p0"}), "different chain lengths"),
    ],
)
def test_what_cannot_be_compared_is_refused(other: Side, message: str) -> None:
    with pytest.raises(InputError, match=message):
        compare(_side("a", RATES), other, margin=0.01, alpha=0.001)


def test_a_pair_with_itself_and_its_other_engines(recorded: Path, harness: Command) -> None:
    outcome = harness("compare", recorded, recorded, "--engine-b", "reference:sequential", "--json")
    assert outcome.status == 0
    assert outcome.json["outcome"] == "same"
    assert outcome.json["drops"]["rate"]["estimate"] == 0
    assert outcome.json["drops"]["t0"] is None
    assert "no difference" in harness("compare", recorded, recorded).out


def test_a_saved_result_is_compared_with_what_it_was_saved_from(harness: Command, tmp_path: Path) -> None:
    """Every field of a prompt's counts is read back: this pair's prompts end in EOS, which the random pair's do not."""
    saved = tmp_path / "saved.json"
    saved.write_text(harness("measure", "tiny", "--prompts", "10", "--json").out)
    assert any(prompt["eos_round"] for prompt in json.loads(saved.read_text())["by_prompt"])
    outcome = harness("compare", saved, saved, "--json")
    assert (outcome.status, outcome.json["outcome"]) == (0, "same")


def test_results_on_disk(recorded: Path, harness: Command, tmp_path: Path) -> None:
    first = tmp_path / "first.json"
    first.write_text(harness("measure", recorded, "--json").out)
    write_draft(recorded.parent / "draft", seed=9)
    second = tmp_path / "second.json"
    second.write_text(harness("check", recorded, "--json").out)
    from_files = harness("compare", first, second, "--json").json
    assert from_files["drops"] == harness("compare", first, recorded, "--json").json["drops"]
    assert from_files["prompts"] == 6
    broken = json.loads(first.read_text())
    broken["by_prompt"][0]["histogram"] = ["many"]
    first.write_text(json.dumps(broken))
    outcome = harness("compare", first, second)
    assert outcome.status == 2
    assert "by_prompt.0.histogram" in outcome.err
