"""What pydantic finds in a user's file, as the error that the user is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pydantic
import pytest

from harness.errors import InputError, invalid
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
    golden["noise"]["float32"]["windows"] = 3
    error = _error(GoldenDocument, golden)
    assert (error.key, error.expected) == ("noise.float32.windows", "one of blocks, changed, how, likelihood")
