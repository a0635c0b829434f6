"""Every fault of the tiny pair, measured: which detector sees it, and that each is what it is called."""

from __future__ import annotations

import pytest

from harness.commands.prepare import prepare
from harness.counts.acceptance import counts_of, measure_acceptance
from harness.engines.base import Progress
from harness.faults.measure import MeasuredFaults, measure_faults
from harness.faults.wirings import boundary_faults
from harness.golden.find import golden_in_use
from harness.golden.store import load_golden
from harness.models.chains import ParallelChains
from harness.pair.pair import load_prompts
from suites.support.builtin_pairs import replay_golden

OTHER = (0, 2, 4)
TOLD: list[tuple[str, int]] = []


@pytest.fixture(scope="module")
def measured() -> MeasuredFaults:
    pair = prepare("tiny")
    TOLD.clear()

    def begin(what: str, total: int) -> None:
        TOLD.append((what, total))

    def advance(count: int) -> None:
        what, left = TOLD[-1]
        TOLD[-1] = (what, left - count)

    golden = load_golden(golden_in_use(pair))
    return measure_faults(pair, golden, load_prompts(pair), OTHER, Progress(begin, advance))


def test_every_wrong_wire_is_seen_and_the_right_one_is_not(measured: MeasuredFaults) -> None:
    assert measured.right.seen_by == []
    assert len(measured.wrong) == len(boundary_faults((2, 4, 7), 8, OTHER)) + 5
    assert [one.name for one in measured.wrong if not one.seen_by] == []
    # The draft recycles its output before the norm, so that this is what it does when it is right.
    assert measured.left_out == ("recycled pre-norm",)


def test_a_wiring_tried_without_the_target_is_the_one_replayed_with_it(measured: MeasuredFaults) -> None:
    one = next(one for one in measured.wrong if one.name == "slot 2 +1")
    run = replay_golden("tiny", (2, 4, 8))
    assert one.rate == measure_acceptance(map(counts_of, run.records)).rate
    assert one.what == "[2, 4, 8]"


def test_what_no_layer_id_makes_does_something(measured: MeasuredFaults) -> None:
    rates = {one.name: one.rate for one in (measured.right, *measured.wrong)}
    for name in ("post-norm last", "recycled post-norm", "d2t ignored", "residual dropped"):
        assert rates[name] < rates["right"] - 0.02, name
    found = {one.name: one.proposals.changed for one in measured.wrong}
    assert found["positions stuck"] > 0
    # No fault is left behind in the class that the next measurement runs.
    assert not hasattr(ParallelChains, "_step")


def test_drift_is_the_targets(measured: MeasuredFaults) -> None:
    drifted = {one.name: one.target.drifted for one in measured.drift}
    assert drifted["4 bits"] > drifted["int8"] > 0


def test_the_share_of_other_proposals_is_in_its_interval(measured: MeasuredFaults) -> None:
    figures = next(one for one in measured.wrong if one.name == "slot 0 +1").proposals
    assert 0 <= figures.changed_share.low < figures.changed_share.estimate < figures.changed_share.high < 1


def test_progress_counts_prompts_of_each_target_and_every_wrong_wire(measured: MeasuredFaults) -> None:
    assert len(measured.wrong) > 0
    assert [what for what, _ in TOLD] == [
        "target", "wrong wires", "target in bfloat16", "target in int8", "target in 4 bits",
    ]  # fmt: skip
    assert {left for _, left in TOLD} == {0}


def test_the_incident_costs_a_third_of_the_rate(measured: MeasuredFaults) -> None:
    incident = next(one for one in measured.wrong if one.name == "the incident")
    assert incident.drop.estimate > 0.3
