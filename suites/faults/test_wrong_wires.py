"""Every wrong wire that a layer id can cause is red by proposals, likelihood or acceptance, never by a hash."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from harness.cli.app import main
from harness.commands.check import CheckResult, check
from harness.commands.prepare import prepare
from suites.support.builtin_pairs import FIXTURES, IDS_KEY, ROOT, copy_pair, layer_ids, read_config

FORWARD = {"proposals", "likelihood", "acceptance"}
IDS = layer_ids()


def _edits() -> dict[str, list[int]]:
    edits = {}
    for slot in range(len(IDS)):
        for step in (-1, 1):
            ids = list(IDS)
            ids[slot] += step
            edits[f"slot {slot} {step:+d}"] = ids
    edits["all +1"] = [value + 1 for value in IDS]
    edits["all -1"] = [value - 1 for value in IDS]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        ids = list(IDS)
        ids[first], ids[second] = ids[second], ids[first]
        edits[f"swap {first} {second}"] = ids
    edits["embedding first"] = [-1, *IDS[1:]]
    return edits


def _red(result: CheckResult) -> set[str]:
    return {name for name, finding in result.findings.items() if finding.state in ("regression", "changed")}


@pytest.mark.parametrize("ids", _edits().values(), ids=_edits().keys())
def test_an_edited_id_is_seen(tmp_path: Path, ids: list[int]) -> None:
    result = check(prepare(copy_pair(tmp_path, ids=ids)))
    assert result.exit_code == 1
    assert _red(result) & FORWARD
    assert result.findings["contract"].state == "pass"
    assert result.findings["target"].state == "pass"


@pytest.mark.parametrize("ids", [[IDS[0] + 1, *IDS[1:]], [*IDS[:2], IDS[2] - 1]])
def test_it_is_seen_on_a_few_prompts_too(tmp_path: Path, ids: list[int]) -> None:
    assert check(prepare(copy_pair(tmp_path, ids=ids)), prompts="8").exit_code == 1


def test_an_untouched_copy_passes(tmp_path: Path) -> None:
    """The counterpart: nothing but the ids makes the copies above red."""
    result = check(prepare(copy_pair(tmp_path)))
    assert (result.verdict, result.exit_code, _red(result)) == ("pass", 0, set())


def test_a_hash_decides_nothing(tmp_path: Path) -> None:
    file = copy_pair(tmp_path)
    config = read_config(tmp_path / "draft") | {"comment": "another file, the same draft"}
    (tmp_path / "draft" / "config.json").write_text(json.dumps(config))
    result = check(prepare(file))
    assert result.verdict == "pass"
    assert any("draft/config.json has changed" in note for note in result.notes)


@pytest.mark.parametrize(("name", "other"), [("tiny", "tiny-embedding"), ("tiny-embedding", "tiny")])
def test_the_founding_incident(tmp_path: Path, name: str, other: str) -> None:
    """A draft trained on one set of layers is served the other: a regression of 20 points or more."""
    result = check(prepare(copy_pair(tmp_path, name, ids=layer_ids(other))))
    assert result.verdict == "regression"
    assert result.exit_code == 1
    assert result.drop is not None
    assert result.drop.low > 0.20


def test_an_edit_in_place_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a checkout, `harness check tiny` reads the files under fixtures/."""
    for folder in ("fixtures", "golden"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["check", "tiny", "--json"]) == 0
    config = read_config(tmp_path / "fixtures" / "tiny" / "draft")
    config["eagle_config"][IDS_KEY][0] += 1
    (tmp_path / "fixtures" / "tiny" / "draft" / "config.json").write_text(json.dumps(config))
    assert main(["check", "tiny", "--json"]) == 1
    assert read_config(FIXTURES / "tiny" / "draft")["eagle_config"][IDS_KEY] == IDS
