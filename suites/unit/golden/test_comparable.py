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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"num_steps": 5},
            r"--k: .*expected 4, as in .*\.pair\.toml and in the golden\)\. Next: leave --k out, or measure",
        ),
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
