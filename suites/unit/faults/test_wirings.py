"""The command behind the tables of wrong wires, on the tiny pair: nothing here needs the real one."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from rich.console import Console

from fixtures.smollm2 import wirings
from fixtures.smollm2.recipe import BOUNDARIES
from fixtures.smollm2.wirings import Wiring, boundary_faults, main, measure_all
from harness.commands.prepare import prepare
from harness.counts.acceptance import counts_of, measure_acceptance
from harness.counts.statistics import Interval
from harness.engines.reference.loaded import load
from harness.models.chains import ParallelChains
from suites.support.builtin_pairs import replay_golden

OTHER = (0, 2, 4)


@pytest.fixture(scope="module")
def measured() -> dict[str, list[Wiring]]:
    return measure_all(prepare("tiny"), OTHER, Console(file=io.StringIO()))


def test_every_wrong_wire_is_seen_and_the_right_one_is_not(measured: dict[str, list[Wiring]]) -> None:
    right, *wrong = measured["wirings"]
    assert right.seen_by == []
    assert len(wrong) == len(boundary_faults((2, 4, 7), 8, OTHER)) + 5
    assert [one.name for one in wrong if not one.seen_by] == []


def test_a_wiring_tried_without_the_target_is_the_one_replayed_with_it(measured: dict[str, list[Wiring]]) -> None:
    one = next(one for one in measured["wirings"] if one.name == "slot 2 +1")
    run = replay_golden("tiny", (2, 4, 8))
    assert one.rate == measure_acceptance(map(counts_of, run.records)).rate
    assert one.what == "[2, 4, 8]"


def test_what_no_layer_id_makes_does_something(measured: dict[str, list[Wiring]]) -> None:
    rates = {one.name: one.rate for one in measured["wirings"]}
    for name in ("post-norm last", "recycled post-norm", "d2t ignored", "residual dropped"):
        assert rates[name] < rates["right"] - 0.02, name
    found = {one.name: one.findings.proposals.measured.changed for one in measured["wirings"]}
    assert found["positions stuck"] > 0
    # The fault was taken out again.
    assert not hasattr(ParallelChains, "_step")


def test_the_embedding_has_no_residual_to_lose() -> None:
    target = load(prepare("tiny-embedding")).target
    with wirings._without_residual(target, (0, 2, 4)) as outputs, target.capture((0, 2, 4)) as capture:
        target.forward(torch.tensor([[1, 2, 3]]))
    assert set(outputs) == {2, 4}
    assert (outputs[4] - capture.state(4)).abs().max() > 0.1


def test_drift_is_the_targets(measured: dict[str, list[Wiring]]) -> None:
    drifted = {one.name: one.findings.target.measured.drifted for one in measured["drift"]}
    assert drifted["4 bits"] > drifted["int8"] > 0


def test_the_faults_of_a_wiring() -> None:
    faults = boundary_faults((2, 4, 7), 8, OTHER)
    assert faults["all +1"] == (3, 5, 8)
    assert faults["slot 0 -1"] == (1, 4, 7)
    assert faults["permutation 021"] == (2, 7, 4)
    assert len([name for name in faults if name.startswith("permutation")]) == 5
    assert "all -1" not in boundary_faults((0, 2, 4), 8, (2, 4, 7))


def test_the_tables_go_between_their_marks(
    tmp_path: Path, measured: dict[str, list[Wiring]], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    place = "<!-- wirings of {0}: begin -->\nold {0}\n<!-- wirings of {0}: end -->\n"
    page.write_text(f"before\n{place.format('another')}{place.format('tiny')}after\n")
    monkeypatch.setattr(wirings, "measure_all", lambda *_: measured)
    main("tiny", "0,2,4", page, as_json=False)
    lines = page.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    assert "old another" in lines
    assert "old tiny" not in lines
    assert any(line.startswith("| the incident | [0, 2, 4] |") for line in lines)


@pytest.mark.parametrize("other", ["0,x,2", "", "0,2", "0,2,99", "-1,2,4", "2,4,7"])
def test_boundaries_of_no_incident_are_refused(
    other: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is measured, and told with what is expected."""
    monkeypatch.setattr(wirings, "measure_all", lambda *_: pytest.fail("something was measured"))
    with pytest.raises(SystemExit) as ended:
        main("tiny", other)
    assert ended.value.code == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "--other" in said
    assert "3 boundaries from 0 to 8, separated by commas, other than [2, 4, 7]" in said


@pytest.mark.parametrize(("text", "told"), [(None, "cannot be read"), ("no place", "no place for the tables")])
def test_a_page_that_cannot_take_tables_is_refused(
    text: str | None, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before minutes are spent on them."""
    monkeypatch.setattr(wirings, "measure_all", lambda *_: pytest.fail("something was measured"))
    page = tmp_path / "page.md"
    if text is not None:
        page.write_text(text)
    with pytest.raises(SystemExit) as ended:
        main("tiny", "0,2,4", page)
    assert ended.value.code == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_an_incident_serves_what_the_other_draft_reads() -> None:
    drafts = tuple(BOUNDARIES.values())
    pairs = [SimpleNamespace(boundaries=one, target=SimpleNamespace(num_layers=30)) for one in drafts]
    assert [wirings._boundaries(None, cast(Any, pair)) for pair in pairs] == [drafts[1], drafts[0]]


def test_the_share_of_other_proposals_stands_in_its_interval(measured: dict[str, list[Wiring]]) -> None:
    findings = next(one for one in measured["wirings"] if one.name == "slot 0 +1").findings
    share = findings.proposals.measured.changed_share
    assert 0 <= share.low < share.estimate < share.high < 1


def test_a_loss_is_told_as_a_change() -> None:
    def loss(estimate: float, low: float, high: float) -> Interval:
        return Interval(estimate, low, high, 0.01, 64, 0.001)

    assert wirings._change(loss(0.0, 0.0, 0.0), 100, 1) == "+0.0 [+0.0, +0.0]"
    assert wirings._change(loss(0.123, 0.1, 0.2), 100, 1) == "-12.3 [-20.0, -10.0]"
    assert wirings._change(loss(float("nan"), 0.0, 0.0), 1, 4) == "not finite"
