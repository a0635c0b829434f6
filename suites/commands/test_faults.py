"""`harness faults`: exit status, tables, pages, and what it refuses before it measures anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from harness.commands import faults as command
from harness.commands.faults import FaultsResult
from harness.commands.prepare import prepare
from harness.faults.measure import MeasuredFaults
from harness.report.bodies.faults import faults_body
from harness.report.faults import faults_report, markdown_tables
from suites.support.command import Command

PLACE = "<!-- wirings of {0}: begin -->\nold {0}\n<!-- wirings of {0}: end -->\n"
# The random pair reads boundaries 0, 2 and 4 of 4 blocks.
OTHER = "1,2,3"


@pytest.fixture
def nothing_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "measure_faults", lambda *_: pytest.fail("something was measured"))


@pytest.fixture
def result(recorded: Path) -> FaultsResult:
    return command.faults(prepare(recorded), other=OTHER)


def _with_all_seen(result: FaultsResult) -> FaultsResult:
    """The random pair's draft is hit by every fault but one."""
    seen = tuple(one for one in result.measured.wrong if one.seen_by)
    return replace(result, measured=replace(result.measured, wrong=seen))


def _text(result: FaultsResult, width: int = 200) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(faults_report(result))
    return captured.get()


def test_a_fault_that_nothing_sees_is_named_and_ends_with_1(recorded: Path, harness: Command) -> None:
    """Its few live tokens have the same ids in both vocabularies, so that this map makes no difference."""
    outcome = harness("faults", recorded, "--other", OTHER)
    assert outcome.status == 1
    assert "seen by no detector: d2t ignored" in outcome.out
    assert outcome.err == ""
    body = harness("faults", recorded, "--other", OTHER, "--json")
    assert body.status == 1
    assert body.json["unseen"] == ["d2t ignored"]
    assert body.json["right"]["seen_by"] == []
    assert body.json["boundaries"] == [0, 2, 4]
    names = [fault["name"] for fault in body.json["faults"]]
    assert "the incident" in names
    assert body.json["left_out"] == ["recycled pre-norm", "4 bits"]
    post_norm = body.json["faults"][names.index("post-norm last")]
    assert post_norm["kind"] == "states"
    assert [(entry["id"], entry["threads"]) for entry in post_norm["catalogue"]] == [
        ("A16", ["BaldEagle#18"]), ("B3", ["speculators#313"]),
    ]  # fmt: skip


def test_no_incident_is_tried_unless_its_boundaries_are_given(recorded: Path, harness: Command) -> None:
    body = harness("faults", recorded, "--json").json
    assert "the incident" not in [fault["name"] for fault in body["faults"]]


def test_a_pair_whose_faults_are_all_seen_ends_with_0(result: FaultsResult) -> None:
    assert (result.exit_code, result.unseen) == (1, ["d2t ignored"])
    seen = _with_all_seen(result)
    assert (seen.exit_code, seen.unseen) == (0, [])
    assert "every wrong wiring is seen by some detector, and the right one by none" in _text(seen)


def test_a_right_wiring_that_some_detector_sees_ends_with_1(result: FaultsResult) -> None:
    """The golden is then of another pair than this one, and says nothing about its faults."""
    seen = _with_all_seen(result)
    changed = replace(seen.measured.right, findings=seen.measured.wrong[0].findings)
    wrong = replace(seen, measured=replace(seen.measured, right=changed))
    assert wrong.exit_code == 1
    assert "the right wiring differs from its golden: stages, proposals; see harness check" in _text(wrong)


def test_a_target_in_other_numbers_decides_nothing(result: FaultsResult) -> None:
    seen = _with_all_seen(result)
    quiet = tuple(replace(one, findings=seen.measured.right.findings) for one in seen.measured.drift)
    assert quiet
    assert replace(seen, measured=replace(seen.measured, drift=quiet)).exit_code == 0


def test_a_report_fits_a_terminal(result: FaultsResult) -> None:
    lines = _text(result, 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("recycled post-norm ") for line in lines)
    assert "left out" in _text(result)


def test_a_golden_that_knows_no_rounding_is_said(result: FaultsResult) -> None:
    document = result.golden.document.model_copy(update={"noise": {}})
    silent = replace(result, golden=replace(result.golden, document=document))
    assert "The golden does not say what rounding alone changes." in markdown_tables(silent)
    assert "windows of proposals" in markdown_tables(result)


def test_the_tables_go_between_their_marks(tmp_path: Path, recorded: Path, harness: Command) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{PLACE.format('another')}{PLACE.format('random')}after\n")
    assert harness("faults", recorded, "--other", OTHER, "--write", page).status == 1
    lines = page.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    assert "old another" in lines
    assert "old random" not in lines
    assert any(line.startswith("| the incident | [1, 2, 3] |") for line in lines)
    rows = [line for line in lines if line.startswith("|")]
    assert {line.count("|") for line in rows} == {9, 10}


def test_tables_written_twice_are_the_same(tmp_path: Path, recorded: Path, harness: Command) -> None:
    page = tmp_path / "page.md"
    page.write_text(PLACE.format("random"))
    harness("faults", recorded, "--write", page)
    once = page.read_text()
    harness("faults", recorded, "--write", page)
    assert page.read_text() == once


@pytest.mark.parametrize("other", ["0,x,2", "", "0,2", "0,2,99", "-1,2,4", "2,4,7"])
@pytest.mark.usefixtures("nothing_measured")
def test_boundaries_of_no_incident_are_refused(other: str, harness: Command) -> None:
    """Before anything is measured, with what is expected."""
    outcome = harness("faults", "tiny", f"--other={other}")
    assert outcome.status == 2
    assert "--other" in outcome.err
    assert "3 boundaries from 0 to 8, separated by commas, other than [2, 4, 7]" in outcome.err


@pytest.mark.parametrize(("text", "told"), [(None, "does not exist"), ("no place", "no place for the tables")])
@pytest.mark.usefixtures("nothing_measured")
def test_a_page_that_cannot_take_tables_is_refused(
    text: str | None, told: str, tmp_path: Path, harness: Command
) -> None:
    """Before minutes are spent on them."""
    page = tmp_path / "page.md"
    if text is not None:
        page.write_text(text)
    outcome = harness("faults", "tiny", "--other", "0,2,4", "--write", page)
    assert outcome.status == 2
    assert told in outcome.err
    assert str(page) in outcome.err
    assert "<!-- wirings of tiny: begin -->" in outcome.err


@pytest.mark.usefixtures("nothing_measured")
def test_a_golden_of_other_prompts_is_refused(recorded: Path, harness: Command) -> None:
    prompts = recorded.parent / "prompts.jsonl"
    prompts.write_text("\n".join(prompts.read_text().splitlines()[:-1]) + "\n")
    outcome = harness("faults", recorded)
    assert outcome.status == 2
    assert "lacks prompts that the golden has" in outcome.err


@pytest.mark.usefixtures("nothing_measured")
def test_a_pair_without_a_golden_is_refused(recorded: Path, harness: Command) -> None:
    for file in (recorded.parent / "golden").rglob("*.json"):
        file.unlink()
    assert harness("faults", recorded).status == 2


def test_the_pairs_own_engine_is_not_asked(recorded: Path, harness: Command) -> None:
    """Faults are planted in the reference engine, whichever engine the pair file names."""
    recorded.write_text(recorded.read_text() + '\n[engine]\nname = "server"\nendpoint = "http://127.0.0.1:9"\n')
    assert harness("faults", recorded, "--json").json["unseen"] == ["d2t ignored"]


def test_measured_faults_are_plain_data(result: FaultsResult) -> None:
    assert isinstance(result.measured, MeasuredFaults)
    assert faults_body(result).golden.endswith("reference-cpu-float32.json")


def test_a_fault_says_which_of_the_catalogue_it_is(result: FaultsResult) -> None:
    body = faults_body(result)
    bodies = {one.name: one for one in (body.right, *body.faults, *body.drift)}
    assert (bodies["right"].kind, bodies["right"].catalogue) == (None, ())
    assert bodies["the incident"].kind == "boundaries"
    assert [entry.id for entry in bodies["the incident"].catalogue] == ["A0"]
    assert bodies["int8"].kind == "target"
    assert [entry.id for entry in bodies["int8"].catalogue] == ["D6"]
