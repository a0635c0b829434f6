"""The real pair as committed: what can be said of it without its target."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fixtures.smollm2.recipe import BOUNDARIES, FIXED, UNSEEN
from harness.faults.wirings import as_list, wrong_wires
from harness.golden.store import load_golden
from harness.pair.pairfile import read_pair_file
from harness.pair.prompts import read_prompt_lines
from harness.report.faults import DRIFT_COLUMNS, WIRE_COLUMNS, require_place

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "fixtures" / "smollm2"
# By pair, the folder of its draft.
NAMES = {
    file.name.removesuffix(".pair.toml"): read_pair_file(file).draft for file in sorted(FOLDER.glob("*.pair.toml"))
}


def test_the_prompt_sets_are_disjoint() -> None:
    fixed, unseen = (read_prompt_lines(FOLDER / name) for name in ("prompts.jsonl", "unseen.jsonl"))
    assert (len(fixed), len(unseen)) == (FIXED, UNSEEN)
    assert UNSEEN >= 64
    said = [{message.content for line in lines for message in line.messages or ()} for lines in (fixed, unseen)]
    assert not said[0] & said[1]
    assert len({line.category for line in fixed}) >= 6


@pytest.mark.parametrize("name", NAMES.values())
def test_a_draft_is_small_enough_for_a_repository(name: str) -> None:
    assert (FOLDER / name / "model.safetensors").stat().st_size < 16_000_000


@pytest.mark.parametrize("page", ["README.md", "fixtures/smollm2/README.md"])
def test_readers_are_told_what_the_pair_is(page: str) -> None:
    text = " ".join((ROOT / page).read_text().split())
    figures = json.loads((FOLDER / "report.json").read_text())["draft"]
    assert "It is a regression fixture and no claim about a draft's quality" in text
    for which in ("fixed", "unseen"):
        assert f"{100 * figures[which]['rate']:.1f} %" in text


@pytest.mark.parametrize("page", ["docs/real-model.md", "fixtures/smollm2/README.md"])
def test_an_incident_serves_what_the_other_draft_reads(page: str) -> None:
    """The commands that write the tables of wrong wires, as the pages give them."""
    commands = dict(re.findall(r"^harness faults (\S+) --other (\S+)", (ROOT / page).read_text(), re.MULTILINE))
    drafts = tuple(BOUNDARIES.values())
    other = {drafts[0]: drafts[1], drafts[1]: drafts[0]}
    assert {name: tuple(map(int, ids.split(","))) for name, ids in commands.items()} == {
        name: other[BOUNDARIES[draft]] for name, draft in NAMES.items()
    }


@pytest.mark.parametrize(("name", "draft"), NAMES.items())
def test_the_tables_of_wrong_wires_are_as_they_would_be_written(name: str, draft: str) -> None:
    page = ROOT / "docs" / "real-model.md"
    before, after = require_place(page, name)
    tables = page.read_text().removeprefix(before).removesuffix(after)
    rows = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in tables.splitlines()]
    assert [row for row in rows if row[0] in ("wiring", "target in")] == [list(WIRE_COLUMNS), list(DRIFT_COLUMNS)]
    shown = {row[0]: row[1] for row in rows if len(row) == len(WIRE_COLUMNS) and row[0] != "wiring"}
    assert shown.pop("right") == as_list(BOUNDARIES[draft])
    other = next(boundaries for boundaries in BOUNDARIES.values() if boundaries != BOUNDARIES[draft])
    # What these drafts do when they are right.
    faults = [one for one in wrong_wires(BOUNDARIES[draft], 30, other) if one.name != "recycled pre-norm"]
    assert shown == {one.name: one.what for one in faults}
    assert re.search(r"Rounding alone changed \d+ of \d+ windows of proposals\.$", tables, re.MULTILINE)


@pytest.mark.parametrize(("name", "draft"), NAMES.items())
def test_the_golden_is_what_the_report_says(name: str, draft: str) -> None:
    report = json.loads((FOLDER / "report.json").read_text())[draft]
    document = load_golden(ROOT / "golden" / name / "reference-cpu-float32.json").document
    assert tuple(document.wiring.boundaries) == BOUNDARIES[draft]
    assert document.totals.rate >= 0.70
    assert document.totals.prompts == FIXED
    # The report's texts were written in other batches than the golden's.
    assert document.totals.rate == pytest.approx(report["fixed"]["rate"], abs=0.005)
