"""The real pair as committed: what can be said of it without its target."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures.smollm2.recipe import BOUNDARIES, FIXED, UNSEEN
from harness.golden.store import load_golden
from harness.pair.pairfile import read_pair_file
from harness.pair.prompts import read_prompt_lines

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


@pytest.mark.parametrize(("name", "draft"), NAMES.items())
def test_the_golden_is_what_the_report_says(name: str, draft: str) -> None:
    report = json.loads((FOLDER / "report.json").read_text())[draft]
    document = load_golden(ROOT / "golden" / name / "reference-cpu-float32.json").document
    assert tuple(document.wiring.boundaries) == BOUNDARIES[draft]
    assert document.totals.rate >= 0.70
    assert document.totals.prompts == FIXED
    # The report's texts were written in other batches than the golden's.
    assert document.totals.rate == pytest.approx(report["fixed"]["rate"], abs=0.005)
