"""The workflows beyond what actionlint knows, which `tox -e lint` runs: permissions, pins, texts in scripts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from suites.support.builtin_pairs import ROOT

FOLDER = ROOT / ".github" / "workflows"
NIGHTLY = FOLDER / "nightly-gpu.yml"


def _steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.fixture(params=sorted(FOLDER.glob("*.yml")), ids=lambda file: file.stem)
def workflow(request: pytest.FixtureRequest) -> dict[str, Any]:
    assert isinstance(request.param, Path)
    body = yaml.safe_load(request.param.read_text(encoding="utf-8"))
    assert isinstance(body, dict)
    return body


@pytest.fixture
def nightly() -> dict[str, Any]:
    body = yaml.safe_load(NIGHTLY.read_text(encoding="utf-8"))
    assert isinstance(body, dict)
    return body


def test_every_job_ends_and_says_what_it_may(workflow: dict[str, Any]) -> None:
    for name, job in workflow["jobs"].items():
        assert isinstance(job["timeout-minutes"], int), name
        assert "permissions" in job or "permissions" in workflow, name


def test_no_script_holds_a_text_of_somebody_else(workflow: dict[str, Any]) -> None:
    """What a person types into a form reaches a script by its environment, where it is no code."""
    for step in _steps(workflow):
        assert "${{" not in step.get("run", ""), step


def test_the_nightly_pins_what_it_runs(nightly: dict[str, Any]) -> None:
    text = NIGHTLY.read_text(encoding="utf-8")
    used = [step["uses"] for step in _steps(nightly) if "uses" in step]
    assert used
    for action in used:
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", action)
        assert re.search(rf"{action} # v\d+\.\d+\.\d+$", text, re.MULTILINE)


def test_what_runs_models_may_write_nothing(nightly: dict[str, Any]) -> None:
    assert nightly["permissions"] == {}
    assert nightly["jobs"]["measure"]["permissions"] == {"contents": "read"}
    assert nightly["jobs"]["tell"]["permissions"] == {"contents": "read", "actions": "read", "issues": "write"}
    for step in _steps(nightly):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
    secrets = [step["name"] for step in _steps(nightly) if "secrets." in str(step.get("env", ""))]
    assert secrets == ["Measure"]
    assert all("secrets." not in str(job.get("env", "")) for job in nightly["jobs"].values())


def test_what_tells_runs_also_after_a_machine_that_died(nightly: dict[str, Any]) -> None:
    tell = nightly["jobs"]["tell"]
    assert tell["runs-on"] == "ubuntu-latest"
    assert tell["needs"] == "measure"
    assert tell["if"].startswith("always()")
    steps = {step.get("name", step.get("uses", "").partition("@")[0]): step for step in tell["steps"]}
    assert steps["actions/download-artifact"]["continue-on-error"] is True
    for name in ("Summary", "Issue", "actions/upload-artifact"):
        assert steps[name]["if"].startswith("always()")


def test_nothing_is_scheduled_without_a_runner_and_one_runs_at_a_time(nightly: dict[str, Any]) -> None:
    assert "vars.ACCEPTANCE_GPU_RUNNER != ''" in nightly["jobs"]["measure"]["if"]
    assert nightly["concurrency"]["cancel-in-progress"] is False


def test_the_commands_have_the_options_that_are_used(nightly: dict[str, Any], pytestconfig: pytest.Config) -> None:
    """Every option of pytest and of `harness nightly` that a script names is one that they have."""
    scripts = "\n".join(step.get("run", "") for step in _steps(nightly))
    import typer.main

    from harness.cli.nightly import nightly as group

    commands = typer.main.get_group(group).commands
    for name in ("report", "publish"):
        (line,) = re.findall(rf"harness nightly {name} (.*(?:\n +--.*)*)", scripts)
        known = {option for parameter in commands[name].params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", line)) <= known
    measure = scripts.partition("-m gpu")[2].partition("-m pytest")[0]
    asked = set(re.findall(r"--[a-z-]+", measure))
    assert {"--acceptance-require-gpu", "--acceptance-json", "--junitxml"} <= asked
    # Read by its default: an option that pytest does not know has none.
    for option in asked:
        pytestconfig.getoption(option)
