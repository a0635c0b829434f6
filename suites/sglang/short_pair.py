"""A built-in pair whose texts are short, with a golden of the reference engine's: checked on the real engine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from harness.commands.check import CheckResult, check
from harness.commands.prepare import prepare
from harness.commands.record import record
from suites.support.builtin_pairs import FIXTURES, IDS_KEY, copy_pair, read_config
from suites.support.prompts import shortest

# A round costs a good part of a second: the gate's level is set so that few prompts decide.
ALPHA = 0.05
_RECORDED = 24


def record_short(folder: Path, name: str = "tiny", *, tokens: int = 12) -> Path:
    """Write a built-in pair with short texts and the prompts that cost least, with its golden; return its pair file."""
    file = copy_pair(folder, name)
    prompts = FIXTURES / "tiny/prompts.jsonl"
    lines = {json.loads(line)["id"]: line for line in prompts.read_text().splitlines()}
    chosen = shortest(prepare(file), _RECORDED)
    (folder / "prompts.jsonl").write_text("".join(f"{lines[prompt.id]}\n" for prompt in chosen))
    text = file.read_text()
    for old, new in (
        (f'"{prompts}"', '"prompts.jsonl"'),
        ("max_new_tokens = 96", f"max_new_tokens = {tokens}"),
        # So few rounds leave the rate uncertain.
        ("floor = 0.70", f"floor = 0.30\nalpha = {ALPHA}"),
        (f'name = "{name}"', 'name = "short"\ngolden = "golden"'),
    ):
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)
    record(prepare(file), reason=None)
    return file


def copy_short(recorded: Path, folder: Path, ids: list[int] | None = None) -> Path:
    """Copy a recorded pair with its golden, with other layer ids where some are given."""
    shutil.copytree(recorded.parent, folder / "pair")
    if ids is not None:
        configure(folder / "pair/draft", {"eagle_config": {IDS_KEY: ids, "use_aux_hidden_state": True}})
    return folder / "pair" / recorded.name


def configure(draft: Path, changes: dict[str, Any]) -> None:
    """Change keys of a draft's config; `None` takes a key out."""
    config = {**read_config(draft), **changes}
    (draft / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def check_shortest(file: Path, prompts: int) -> CheckResult:
    """Check on the real engine, on the prompts that cost least."""
    pair = prepare(file, engine="sglang")
    return check(pair, prompts=",".join(prompt.id for prompt in shortest(pair, prompts)))


def states(result: CheckResult) -> dict[str, str]:
    """Return each detector's state."""
    return {name: str(finding.state) for name, finding in result.findings.items()}


def require_incident(result: CheckResult, trained: list[int], served: list[int]) -> None:
    """Both figures, the verdict, and the cause: what is captured and what was."""
    assert (str(result.verdict), result.exit_code) == ("regression", 1)
    assert states(result)["acceptance"] == "regression"
    assert list(result.pair.boundaries) == served
    golden = result.golden.document.totals.rate
    now = result.measurement.acceptance.rate
    assert golden is not None
    assert now is not None
    assert now < golden - 0.2
    cause = f"boundaries {served} are captured, {trained} were when the golden was recorded"
    assert any(cause in note for note in result.findings["contract"].notes)
