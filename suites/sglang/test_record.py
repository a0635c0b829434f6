"""Goldens of the real SGLang, in this process tree and behind HTTP: healthy pairs pass them, one wrong id does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.commands.check import check
from harness.commands.prepare import prepare
from harness.commands.record import record
from harness.golden.store import load_golden
from suites.sglang.http import http_server
from suites.sglang.short_pair import ALPHA, copy_short, record_short
from suites.support.builtin_pairs import layer_ids
from suites.support.prompts import shortest

PROMPTS, TOKENS = 4, 12

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def without_golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny pair on four prompts, strict, without any golden: its pair file."""
    file = record_short(tmp_path_factory.mktemp("unrecorded"), tokens=TOKENS)
    pair = prepare(file)
    chosen = {prompt.id for prompt in shortest(pair, PROMPTS)}
    prompts = file.parent / "prompts.jsonl"
    lines = [line for line in prompts.read_text().splitlines() if json.loads(line)["id"] in chosen]
    prompts.write_text("".join(f"{line}\n" for line in lines))
    text = file.read_text()
    # Four prompts: their rate is far above this floor, and its interval is wide.
    assert "floor = 0.30" in text
    file.write_text(text.replace("floor = 0.30", "floor = 0.05"))
    for golden in (file.parent / "golden" / "short").iterdir():
        golden.unlink()
    return file


def _one_id_off() -> list[int]:
    first, *others = layer_ids()
    return [first + 1, *others]


def test_a_golden_of_sglang_itself(without_golden: Path, tmp_path: Path) -> None:
    file = copy_short(without_golden, tmp_path)
    made = record(prepare(file, engine="sglang"))
    assert made.file.name == "sglang-cpu-float32.json"
    assert made.unfed == ("likelihood",)
    document = load_golden(made.file).document
    assert len(document.runs) == 2
    # The same chains in other batches, in float32.
    (again,) = document.noise["float32"].arms
    assert again.changed == 0
    assert again.windows > 0
    healthy = check(prepare(file, engine="sglang"))
    assert (str(healthy.verdict), healthy.exit_code) == ("pass", 0)
    assert healthy.golden.file == made.file
    wrong = check(prepare(copy_short(file, tmp_path / "wrong", _one_id_off()), engine="sglang"))
    assert wrong.exit_code == 1
    assert str(wrong.findings.stages.state) == "changed"
    assert "slot 0" in wrong.findings.stages.message


def test_a_golden_of_a_server(without_golden: Path, tmp_path: Path) -> None:
    """A server shows its counts only: the wrong id is one that costs three of four prompts some acceptance.

    With three golden runs the chance that each of three prompts was lowest in the fourth is 1/64.
    """
    file = copy_short(without_golden, tmp_path)
    file.write_text(file.read_text().replace(f"alpha = {ALPHA}", "alpha = 0.3"))
    with http_server(prepare(file), tmp_path) as server:
        made = record(prepare(file, endpoint=server.endpoint))
        assert made.file.name == "server-cpu-float32.json"
        runs = load_golden(made.file).document.runs
        assert len(runs) == 3
        assert all("with an empty prefix cache" in run for run in runs[1:])
        healthy = check(prepare(file, endpoint=server.endpoint))
    assert (str(healthy.verdict), healthy.exit_code) == ("pass", 0)
    first, second, _ = layer_ids()
    # Boundary 1 in place of boundary 7.
    wrong = copy_short(file, tmp_path / "wrong", [first, second, 0])
    with http_server(prepare(wrong), tmp_path / "wrong") as server:
        result = check(prepare(wrong, endpoint=server.endpoint))
    assert result.exit_code == 1
    assert str(result.findings.acceptance.state) == "regression"
