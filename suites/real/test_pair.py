"""The real pair as committed: what its golden and its README say, and replay against the oracle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures.smollm2.recipe import BOUNDARIES, FIXED, UNSEEN
from harness.baseline.store import find_golden, load_golden
from harness.check import prepare
from harness.engines.reference.loaded import load
from harness.engines.reference.replay import replay
from harness.engines.reference.sequential import sequential
from harness.pair.pair import load_prompts
from harness.pair.pairfile import read_pair_file
from harness.pair.prompts import read_prompt_lines
from suites.real_target import require_target

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "fixtures" / "smollm2"
# By pair, the folder of its draft.
NAMES = {
    file.name.removesuffix(".pair.toml"): read_pair_file(file).draft for file in sorted(FOLDER.glob("*.pair.toml"))
}


def _report() -> dict[str, Any]:
    report = json.loads((FOLDER / "report.json").read_text())
    assert isinstance(report, dict)
    return report


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


@pytest.mark.parametrize("name", NAMES)
def test_the_golden_is_what_the_report_says(name: str) -> None:
    require_target()
    pair = prepare(name)
    document = load_golden(find_golden(pair, "reference-cpu-float32")).document
    assert pair.boundaries == BOUNDARIES[NAMES[name]]
    assert document.totals.rate >= 0.70
    assert document.totals.prompts == FIXED
    # The report's texts were written in other batches than the golden's.
    assert document.totals.rate == pytest.approx(_report()[NAMES[name]]["fixed"]["rate"], abs=0.005)


@pytest.mark.parametrize("page", ["README.md", "fixtures/smollm2/README.md"])
def test_readers_are_told_what_the_pair_is(page: str) -> None:
    text = " ".join((ROOT / page).read_text().split())
    figures = _report()["draft"]
    assert "It is a regression fixture and no claim about a draft's quality" in text
    for which in ("fixed", "unseen"):
        assert f"{100 * figures[which]['rate']:.1f} %" in text


@pytest.mark.parametrize("shift", [0, 1])
def test_replay_is_the_sequential_decoder(shift: int) -> None:
    """In float64, round by round, wired right and wrong."""
    require_target()
    loaded = load(prepare("smollm2", dtype="float64"))
    prompts = load_prompts(loaded.pair, "2")
    boundaries = tuple(boundary + shift for boundary in loaded.pair.boundaries)
    decoded = sequential(loaded.target, loaded.draft, boundaries, prompts, loaded.limits)
    texts = [record.output_ids for record in decoded]
    replayed = replay(loaded.target, loaded.draft, boundaries, prompts, texts, loaded.limits)
    assert [record.rounds for record in decoded] == [record.rounds for record in replayed]
    assert all(record.rounds for record in decoded)
