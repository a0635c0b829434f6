"""`harness nightly`: summarises a nightly GPU run and keeps an issue about it. It needs neither torch nor a GPU."""

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
    help="Summarise a nightly GPU run: Markdown summary, history, HTML page, and an issue while it is not green.",
    rich_markup_mode=None,
)

_DOCUMENT = "nightly.json"
_ISSUE = "issue.md"
_JOBS = ("success", "failure", "cancelled")


@nightly.command()
def report(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder for the files.")],
    results: Annotated[
        Path, typer.Option("--results", help="File written by pytest --acceptance-json; may be missing.")
    ],
    junit: Annotated[Path, typer.Option("--junit", help="File written by pytest --junitxml; may be missing.")],
    history: Annotated[
        Path | None, typer.Option("--history", help="File of earlier runs, one line each; this run is added to it.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Name of the nightly, if a repository has several.")] = "gpu",
    job: Annotated[
        str, typer.Option("--job", help="Result of the job that ran pytest: success, failure or cancelled.")
    ] = "success",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Write summary.md, issue.md, report.html and nightly.json to OUT: exit 0 if the nightly is green, else 1.

    Missing result files are not an error: the nightly is then reported as unfinished. Run, commit and address are taken
    from GITHUB_RUN_ID, GITHUB_SHA, GITHUB_SERVER_URL and GITHUB_REPOSITORY if these are set.
    """
    from harness.files import json_text, require_writable, write_atomically
    from harness.nightly.history import read_history, write_history
    from harness.nightly.results import read_nightly
    from harness.report.bodies.base import plain
    from harness.report.bodies.nightly import nightly_body
    from harness.report.nightly import issue_body, issue_title, page, summary

    if job not in _JOBS:
        raise InputError("the result of the job is unknown", key="--job", found=job, expected=" or ".join(_JOBS))
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
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder that `harness nightly report` has written.")],
    repository: Annotated[
        str, typer.Option("--repo", envvar="GITHUB_REPOSITORY", help="owner/name. Default: GITHUB_REPOSITORY.")
    ] = "",
    label: Annotated[str, typer.Option("--label", help="Label of the issue.")] = "acceptance-nightly",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Open an issue if the nightly is not green, comment on it every night, and close it once the nightly is green.

    Each nightly has one open issue at most, found by label and title. Needs GitHub's command gh and its GH_TOKEN.
    """
    from harness.files import read_json_object, read_text
    from harness.nightly.issue import publish as publish_issue
    from harness.report.bodies.nightly import publish_body

    if not repository:
        raise InputError("the repository is missing", key="--repo", expected="owner/name, or GITHUB_REPOSITORY set")
    step = "run `harness nightly report` first"
    document = read_json_object(out / _DOCUMENT, what="nightly's result", next_step=step)
    title, green = document.get("title"), document.get("green")
    if not isinstance(title, str) or not isinstance(green, bool):
        raise InputError(
            "the file is not the result of a nightly",
            file=out / _DOCUMENT,
            key="title and green",
            found=[title, green],
            expected="a file that `harness nightly report` of this version has written",
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
