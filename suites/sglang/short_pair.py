"""A built-in pair whose texts are short, with a golden of the reference engine's: checked on the real engine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from harness.check import CheckResult, check, prepare
from harness.pair.pair import load_prompts
from harness.recording import record
from suites.builtin_pairs import IDS_KEY, copy_pair, read_config

# A round costs a good part of a second: the gate's level is set so that few prompts decide.
ALPHA = 0.05


def record_short(folder: Path, name: str = "tiny") -> Path:
    """Write a copy of a built-in pair whose texts are short, with its golden, and return its pair file."""
    file = copy_pair(folder, name)
    text = file.read_text().replace("max_new_tokens = 96", "max_new_tokens = 16")
    assert "max_new_tokens = 16" in text
    text = text.replace(f'name = "{name}"', 'name = "short"\ngolden = "golden"')
    file.write_text(text.replace("[gate]", f"[gate]\nalpha = {ALPHA}"))
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
    shortest = sorted(load_prompts(pair), key=lambda prompt: (len(prompt.ids), prompt.id))[:prompts]
    return check(pair, prompts=",".join(prompt.id for prompt in shortest))


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
