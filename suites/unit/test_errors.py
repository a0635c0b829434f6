"""Errors as the user is shown them: what pydantic finds in a file, and what an engine says when it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pydantic
import pytest

from harness.errors import EngineError, InputError, invalid
from harness.golden.schema import GoldenDocument
from harness.pair.pairfile import PairFile
from suites.support.builtin_pairs import ROOT

FILE = Path("a.pair.toml")
PAIR = {"name": "a", "target": "t", "draft": "d", "prompts": "p"}


def _error(model: type[pydantic.BaseModel], content: dict[str, Any], **options: Any) -> InputError:
    with pytest.raises(pydantic.ValidationError) as caught:
        model.model_validate_json(json.dumps(content))
    return invalid(caught.value, model, file=FILE, **options)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({**PAIR, "decode": {"num_steps": "4"}}, "decode.num_steps: the value is not usable (found '4', expected a "),
        (
            {**PAIR, "engine": {"timeouts": {"conect": 1}}},
            "engine.timeouts.conect: unknown key (found 1, expected one of connect, silence, total).",
        ),
        ({"name": "a", "draft": "d", "prompts": "p"}, "target: the key is missing. Next: add target."),
        (
            {**PAIR, "decode": {"num_steps": 4, "num_draft_tokens": 4}},
            "decode: num_draft_tokens = 4 does not fit num_steps = 4: a chain verifies num_steps + 1 = 5 tokens. "
            "Next: correct decode.",
        ),
    ],
)
def test_the_first_finding_names_key_value_and_remedy(content: dict[str, Any], text: str) -> None:
    assert str(_error(PairFile, content)).startswith(f"{FILE}: {text}")


def test_the_place_in_the_file_and_a_next_step_of_the_caller() -> None:
    content = {"name": "a", "draft": "d", "prompts": "p"}
    assert str(_error(PairFile, content, where="line 3")) == (
        f"{FILE}: line 3, target: the key is missing. Next: add target to line 3."
    )
    assert str(_error(PairFile, content, next_step="restore it")).endswith("is missing. Next: restore it.")


def test_keys_have_the_names_that_the_file_gives_them() -> None:
    golden = json.loads((ROOT / "golden" / "tiny" / "reference-cpu-float32.json").read_text())
    golden["noise"]["float32"]["arms"][0]["blocks"] = 3
    error = _error(GoldenDocument, golden)
    keys = "one of by_prompt, changed, drifted, evaluated, how, likelihood, windows"
    assert (error.key, error.expected) == ("noise.float32.arms.0.blocks", keys)


def test_an_engine_that_fails_does_not_control_the_terminal() -> None:
    """Its log may repeat what a checkpoint or a server says."""
    evil = "\x1b]0;owned\x07\x1b[2J\u202e"
    error = EngineError(f"it died: {evil}", log=Path("engine.log"), tail=[f"a {evil}", "b"])
    lines = str(error).split("\n")
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)
    assert lines[1:] == ["  a \\x1b]0;owned\\x07\\x1b[2J\\u202e", "  b"]
