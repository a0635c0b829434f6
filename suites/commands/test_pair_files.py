"""What every command asks of a pair's files alike: who wrote the layer ids, and that each file is read once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness.pair.pair import load_pair
from suites.support.builtin_pairs import FIXTURES
from suites.support.command import Command
from suites.support.random_pair import DRAFT_CONFIG, PAIR, write_pair

KEY = "eagle_aux_hidden_state_layer_ids"
COMMANDS = {"measure": (), "check": (), "trace": ("--static",)}


def _speculators() -> dict[str, Any]:
    own = ("draft_vocab_size", "eagle_config", "architectures")
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": DRAFT_CONFIG["draft_vocab_size"],
        KEY: [0, 2, 4],
        "transformer_layer_config": {name: value for name, value in DRAFT_CONFIG.items() if name not in own},
    }


@pytest.mark.parametrize(
    ("config", "expected", "explained"),
    [
        (
            _speculators(),
            "speculators==0.4 or speculators==0.3",
            "speculators==0.4 (boundary = id), speculators==0.3 (boundary = id + 1)",
        ),
        (
            DRAFT_CONFIG,
            "specforge or modelopt",
            "specforge (boundary = id + 1), modelopt (boundary = id + 1)",
        ),
    ],
)
def test_a_missing_writer_is_told_alike_with_the_writers_of_such_a_config(
    config: dict[str, Any], expected: str, explained: str, tmp_path: Path, harness: Command
) -> None:
    file = write_pair(tmp_path, pair=PAIR.replace('trained_as = "specforge"\n', ""))
    (tmp_path / "draft" / "config.json").write_text(json.dumps(config))
    errors = []
    for command, options in COMMANDS.items():
        outcome = harness(command, file, *options, "--json")
        assert outcome.status == 2
        errors.append(outcome.json["error"])
    assert errors[0] == errors[1] == errors[2]
    assert (errors[0]["key"], errors[0]["expected"]) == ("trained_as", expected)
    assert explained in errors[0]["next_step"]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[Path]:
    """How often each file of text is read."""
    counts: Counter[Path] = Counter()
    read = Path.read_bytes

    def counted(path: Path) -> bytes:
        counts[path.resolve()] += 1
        return read(path)

    # All text is read by harness.files.read_text, which reads the bytes so.
    monkeypatch.setattr(Path, "read_bytes", counted)
    return counts


@pytest.mark.parametrize("command", [("check", "--prompts", "2"), ("measure", "--prompts", "1"), ("trace",)])
def test_the_drafts_config_is_read_once_in_a_command(
    command: tuple[str, ...], opened: Counter[Path], harness: Command
) -> None:
    assert harness(command[0], "tiny", *command[1:]).status == 0
    assert opened[FIXTURES / "tiny" / "draft" / "config.json"] == 1
    assert opened[FIXTURES / "pairs" / "tiny.pair.toml"] == 1


def test_a_pair_served_by_another_engine_reads_no_file_again(opened: Counter[Path]) -> None:
    pair = load_pair("tiny")
    before = Counter(opened)
    served = pair.served_as("sglang==0.5.23")
    assert opened == before
    assert (served.settings.served_by, served.prompts_file) == ("sglang==0.5.23", pair.prompts_file)
    assert served.wiring.served.convention == "sglang==0.5.23"
    # Back and forth: what one reader leaves out of the draft another must find again.
    assert served.served_as("vllm").draft == pair.served_as("vllm").draft
