"""Every wrong layer id of the real pair is red on some of its prompts, by a detector that runs the draft."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.smollm2.recipe import BOUNDARIES
from harness.commands.check import CheckResult, check
from harness.commands.prepare import prepare
from harness.engines.reference import loaded
from harness.faults.wirings import boundary_faults
from harness.models.target import load_target
from suites.support.real_target import require_target

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "smollm2"
IDS_KEY = "eagle_aux_hidden_state_layer_ids"
FORWARD = {"proposals", "likelihood", "acceptance"}
FAULTS = {
    fault.name: fault.boundaries for fault in boundary_faults(BOUNDARIES["draft"], 30, BOUNDARIES["draft-embedding"])
}
SOME = "24"


@pytest.fixture(autouse=True, scope="module")
def _loaded_once() -> Iterator[None]:
    """The target is loaded once for all checks; each still runs it."""
    require_target()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loaded, "load_target", functools.cache(load_target))
        yield


def _check(folder: Path, boundaries: tuple[int, ...], draft: str = "draft") -> CheckResult:
    """Check a copy of a draft's pair with ids edited in its config, as SpecForge writes them."""
    shutil.copytree(FOLDER / draft, folder / draft)
    config = json.loads((folder / draft / "config.json").read_text())
    config["eagle_config"][IDS_KEY] = [boundary - 1 for boundary in boundaries]
    (folder / draft / "config.json").write_text(json.dumps(config))
    file = draft.replace("draft", "smollm2") + ".pair.toml"
    text = (FOLDER / file).read_text()
    text = text.replace('prompts = "', f'prompts = "{FOLDER}/')
    (folder / file).write_text(text)
    return check(prepare(str(folder / file)), prompts=SOME)


def _red(result: CheckResult) -> set[str]:
    return {name for name, finding in result.findings.items() if finding.state in ("regression", "changed")}


@pytest.mark.parametrize("boundaries", FAULTS.values(), ids=FAULTS)
def test_a_wrong_id_is_seen(tmp_path: Path, boundaries: tuple[int, ...]) -> None:
    result = _check(tmp_path, boundaries)
    print(f"\n{list(boundaries)}: rate {result.measurement.acceptance.rate:.3f}, red: {sorted(_red(result))}")  # noqa: T201
    assert result.exit_code == 1
    assert _red(result) & FORWARD
    assert result.findings["target"].state == "pass"


@pytest.mark.parametrize("draft", BOUNDARIES)
def test_the_right_ids_pass(tmp_path: Path, draft: str) -> None:
    """The counterpart: nothing but the ids makes the copies above red."""
    result = _check(tmp_path, BOUNDARIES[draft], draft)
    assert (result.verdict, result.exit_code, _red(result)) == ("pass", 0, set())


@pytest.mark.parametrize(("draft", "served"), [("draft", "draft-embedding"), ("draft-embedding", "draft")])
def test_the_incident_is_a_regression(tmp_path: Path, draft: str, served: str) -> None:
    """Either draft is served the boundaries that the other was trained on; the report gives the drop and the cause."""
    result = _check(tmp_path, BOUNDARIES[served], draft)
    assert result.verdict == "regression"
    assert result.drop is not None
    assert result.drop.low > 0.10
    cause = f"boundaries {list(BOUNDARIES[served])} are captured, {list(BOUNDARIES[draft])} were when the golden was"
    assert any(cause in note for note in result.findings["contract"].notes)
