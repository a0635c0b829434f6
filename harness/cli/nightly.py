"""`harness nightly`: what a nightly on a GPU machine came to, and the issue about it. Needs neither torch nor a GPU."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import output
from harness.cli.options import DebugOption, JsonOption
from harness.errors import InputError

if TYPE_CHECKING:
    from harness.nightly.results import RunInfo

__all__ = ["nightly"]

nightly = typer.Typer(
    name="nightly",
    help="What a nightly run on a GPU machine came to: summary, history, HTML page, and the issue about it.",
    rich_markup_mode=None,
)

_DOCUMENT = "nightly.json"
_ISSUE = "issue.md"
_JOBS = ("success", "failure", "cancelled")


@nightly.command()
def report(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write into.")],
    results: Annotated[Path, typer.Option("--results", help="What pytest's --acceptance-json wrote.")],
    junit: Annotated[Path, typer.Option("--junit", help="What pytest's --junitxml wrote.")],
    history: Annotated[
        Path | None, typer.Option("--history", help="The runs so far, a line each; this one is added to it.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="The nightly's name.")] = "gpu",
    job: Annotated[
        str, typer.Option("--job", help="How the job that ran pytest ended: success, failure or cancelled.")
    ] = "success",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Write OUT/summary.md, issue.md, report.html and nightly.json: exit 0 where the nightly is green, 1 where not.

    Files that a run did not come to write are no error: they are what is told. Run, commit and address are taken from
    GITHUB_RUN_ID, GITHUB_SHA, GITHUB_SERVER_URL and GITHUB_REPOSITORY where these are set.
    """
    from harness.files import json_text, require_writable, write_atomically
    from harness.nightly.history import read_history, write_history
    from harness.nightly.results import read_nightly
    from harness.report.body import plain
    from harness.report.nightly import issue_body, issue_title, page, summary
    from harness.report.nightly_bodies import nightly_body

    if job not in _JOBS:
        raise InputError("no such end of a job", key="--job", found=job, expected=" or ".join(_JOBS))
    require_writable(out)
    tonight = read_nightly(_run_info(name), results=results, junit=junit, job=job)
    past = [] if history is None else read_history(history)
    if history is not None:
        write_history(history, past, tonight)
        past = read_history(history)
    body = nightly_body(tonight, title=issue_title(name))
    texts = {
        "summary.md": summary(tonight, past),
        _ISSUE: issue_body(tonight, past),
        "report.html": page(tonight, past),
    }
    for file, text in texts.items():
        write_atomically(out / file, text.encode())
    write_atomically(out / _DOCUMENT, json_text(plain(body)).encode())
    if json:
        output.print_json(body)
    else:
        output.note(f"{tonight.state}: {tonight.why}; written to {out}")
    raise typer.Exit(0 if tonight.green else 1)


@nightly.command()
def publish(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder that `harness nightly report` wrote.")],
    repository: Annotated[
        str, typer.Option("--repo", envvar="GITHUB_REPOSITORY", help="owner/name. Default: GITHUB_REPOSITORY.")
    ] = "",
    label: Annotated[str, typer.Option("--label", help="The label of the issue.")] = "acceptance-nightly",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Open an issue where the nightly is not green, comment the open one, close it when it is green again.

    One issue for each nightly, found by label and title. By GitHub's command gh, with its GH_TOKEN.
    """
    from harness.files import read_json_object, read_text
    from harness.nightly.issue import publish as publish_issue
    from harness.report.nightly_bodies import publish_body

    if not repository:
        raise InputError("no repository is named", key="--repo", expected="owner/name, or GITHUB_REPOSITORY")
    step = "run `harness nightly report` first"
    document = read_json_object(out / _DOCUMENT, what="nightly's result", next_step=step)
    title, green = document.get("title"), document.get("green")
    if not isinstance(title, str) or not isinstance(green, bool):
        raise InputError(
            "this is no nightly's result",
            file=out / _DOCUMENT,
            key="title and green",
            found=[title, green],
            expected="what `harness nightly report` of this version wrote",
        )
    body = read_text(out / _ISSUE, what="issue's text", next_step=step)
    done = publish_issue(title=title, body=body, green=green, repository=repository, label=label)
    if json:
        output.print_json(publish_body(done))
    else:
        output.note(f"{done.done}{f': {done.issue}' if done.issue else ''}")


def _run_info(name: str) -> RunInfo:
    from harness.nightly.results import RunInfo

    def given(key: str) -> str:
        return os.environ.get(key, "").strip()

    run, time = given("GITHUB_RUN_ID"), f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
    address = f"{given('GITHUB_SERVER_URL')}/{given('GITHUB_REPOSITORY')}/actions/runs/{run}"
    known = run and given("GITHUB_SERVER_URL") and given("GITHUB_REPOSITORY")
    return RunInfo(name, run or time, time, given("GITHUB_SHA"), address if known else "")
