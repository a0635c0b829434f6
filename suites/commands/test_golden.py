"""`harness golden show | diff | verify`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suites.support.command import Command


def _file(pair: Path) -> Path:
    return pair.parent / "golden" / "random" / "reference-cpu-float32.json"


def test_show_by_pair_by_file_and_as_json(recorded: Path, harness: Command) -> None:
    for which in (recorded, _file(recorded)):
        outcome = harness("golden", "show", which)
        assert outcome.status == 0
        for part in ("8.6±", "ids [-1, 1, 3] as specforge: boundaries [0, 2, 4]", "first record", "eager attention"):
            assert part in outcome.out
    assert harness("golden", "show", recorded, "--json").json["totals"]["prompts"] == 6


def test_show_and_diff_read_the_class_asked_for_or_the_pairs_own(recorded: Path, harness: Command) -> None:
    recorded.write_text(recorded.read_text() + '[engine]\ndtype = "float64"\n')
    # Its own class is not recorded yet: the golden that a check falls back on.
    assert harness("golden", "show", recorded, "--json").json["dtype"] == "float32"
    missing = harness("golden", "show", recorded, "--class", "reference-cpu-bfloat16")
    assert missing.status == 2
    for part in ("found reference-cpu-float32.json", "expected reference-cpu-bfloat16.json", "--dtype bfloat16"):
        assert part in missing.err
    assert harness("record", recorded).status == 0
    assert harness("golden", "show", recorded, "--json").json["dtype"] == "float64"
    assert harness("golden", "show", recorded, "--class", "reference-cpu-float32", "--json").json["dtype"] == "float32"
    outcome = harness("golden", "diff", recorded, _file(recorded), "--json")
    assert (outcome.status, outcome.json["settings"]["dtype"]) == (1, {"before": "float64", "after": "float32"})
    wrong = harness("golden", "diff", recorded, recorded, "--class", "../golden")
    assert (wrong.status, "--class: " in wrong.err) == (2, True)


def test_a_golden_does_not_differ_from_itself(recorded: Path, harness: Command) -> None:
    outcome = harness("golden", "diff", recorded, _file(recorded), "--json")
    assert (outcome.status, outcome.json["same"], outcome.json["by_prompt"]) == (0, True, [])


def test_diff_names_what_changed_prompt_by_prompt(recorded: Path, harness: Command, tmp_path: Path) -> None:
    shutil.copytree(_file(recorded).parent, tmp_path / "before")
    config = recorded.parent / "draft" / "config.json"
    config.write_text(config.read_text().replace("[-1, 1, 3]", "[-1, 1, 2]"))
    assert harness("record", recorded, "--reason", "rewired").status == 0
    outcome = harness("golden", "diff", tmp_path / "before" / _file(recorded).name, recorded, "--json")
    body = outcome.json
    assert outcome.status == 1
    assert set(body["settings"]) == {"wiring"}
    assert [prompt["id"] for prompt in body["by_prompt"]] == [f"p{index}" for index in range(6)]
    assert all(not prompt["continuation_differs"] and prompt["changed"] > 0 for prompt in body["by_prompt"])
    text = harness("golden", "diff", tmp_path / "before" / _file(recorded).name, recorded).out
    assert "boundaries" in text
    assert "p3" in text


def test_an_untouched_golden_is_verified(recorded: Path, harness: Command) -> None:
    outcome = harness("golden", "verify", recorded, "--json")
    assert (outcome.status, outcome.json["verified"]) == (0, True)


def _edit(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def apply(pair: Path) -> None:
        body = json.loads(_file(pair).read_text())
        change(body)
        _file(pair).write_text(json.dumps(body))

    return apply


def _move_a_round(body: dict[str, Any]) -> None:
    """Edit a count and every sum that would show it."""
    histogram = body["prompts"][0]["histogram"]
    histogram[0] -= 1
    histogram[1] += 1
    totals = body["totals"]
    totals["accepted"] += 1
    totals["rate"] = totals["accepted"] / totals["proposed"]
    totals["length"] = 1 + totals["accepted"] / totals["rounds"]


def _wrong_sum(body: dict[str, Any]) -> None:
    body["totals"]["accepted"] += 1


def _duplicate(body: dict[str, Any]) -> None:
    body["prompts"].append(body["prompts"][0])


def _not_a_number(body: dict[str, Any]) -> None:
    body["totals"]["rate"] = float("nan")


def _other_schema(body: dict[str, Any]) -> None:
    body["schema_version"] = 3


def _other_weights(pair: Path) -> None:
    config = pair.parent / "draft" / "config.json"
    config.write_text(config.read_text() + "\n")


def _other_prompts(pair: Path) -> None:
    prompts = pair.parent / "prompts.jsonl"
    prompts.write_text("".join(prompts.read_text().splitlines(keepends=True)[:-1]))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_edit(_move_a_round), "the recorded continuation and proposals give"),
        (_edit(_wrong_sum), "counts give"),
        (_edit(_duplicate), "occurs twice"),
        (_edit(_not_a_number), "finite"),
        (_edit(_other_schema), "another schema"),
        (_other_weights, "draft/config.json has changed"),
        (_other_prompts, "lacks prompts"),
    ],
)
def test_verify_finds(recorded: Path, harness: Command, damage: Callable[[Path], None], message: str) -> None:
    damage(recorded)
    outcome = harness("golden", "verify", recorded)
    assert outcome.status == 1, outcome
    assert message in outcome.out


def test_a_pair_without_a_golden_cannot_be_verified(recorded: Path, harness: Command) -> None:
    shutil.rmtree(_file(recorded).parent)
    outcome = harness("golden", "verify", recorded)
    assert outcome.status == 2
    assert "harness record" in outcome.err
