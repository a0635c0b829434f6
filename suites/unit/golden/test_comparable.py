"""Which runs a golden may be compared with, and what a refusal points at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.commands.prepare import prepare
from harness.errors import InputError
from harness.golden.comparable import require_comparable
from harness.golden.find import golden_in_use
from harness.golden.store import load_golden
from harness.pair.pair import load_prompts
from suites.support.command import Command
from suites.support.damage import replace_text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_steps": 5}, r"expected 5, as in .*\.pair\.toml\)"),
        ({"max_new_tokens": 7}, r"expected 7, as in .*\.pair\.toml\)"),
    ],
)
def test_other_decode_settings_are_refused_with_their_source(change: dict[str, int], said: str, recorded: Path) -> None:
    pair = prepare(recorded)
    golden = load_golden(golden_in_use(pair))
    decode = pair.settings.decode.model_copy(update=change)
    other = replace(pair, settings=pair.settings.model_copy(update={"decode": decode}))
    with pytest.raises(InputError, match=said):
        require_comparable(golden, other, load_prompts(pair), subset=False)


@pytest.mark.parametrize("asked", [1, 3, 9, 64])
def test_a_chain_length_asked_for_is_named_by_its_option(asked: int, recorded: Path, harness: Command) -> None:
    """Not the pair file, which is right."""
    outcome = harness("check", recorded, "--k", asked, "--json")
    assert outcome.status == 2
    error = outcome.json["error"]
    assert (error["key"], error["found"], error["expected"]) == ("--k", str(asked), "4")
    assert "record it again" not in error["message"]
    assert error["next_step"].startswith("leave --k out, or give --k 4; ")
    assert f"harness measure {recorded} --k {asked} " in error["next_step"]


def test_what_is_proposed_for_another_chain_length_helps(recorded: Path, harness: Command) -> None:
    assert harness("check", recorded, "--k", 4).status == 0
    assert harness("measure", recorded, "--k", 3).status == 0
    copy = recorded.with_name("longer.pair.toml")
    text = recorded.read_text()
    copy.write_text(text.replace('"random"', '"longer"', 1).replace("num_steps = 4", "num_steps = 3"))
    assert harness("record", copy).status == 0
    assert harness("check", copy).status == 0


def test_the_golden_of_another_length_than_the_pair_file_can_be_asked_for(recorded: Path, harness: Command) -> None:
    """The pair file was changed after recording: `--k` with the golden's length is a comparison all the same."""
    replace_text(recorded, "num_steps = 4", "num_steps = 3")
    changed = harness("check", recorded, "--json")
    assert (changed.status, changed.json["error"]["key"]) == (2, "decode.num_steps")
    assert harness("check", recorded, "--k", 4).status == 0
