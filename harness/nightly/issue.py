"""Keeping one open issue for each nightly that is not green: opened, commented every night, closed when green again.

It uses GitHub's command `gh`, which takes the server's address and the token from the runner and retries by itself.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import EngineError, InputError, one_line
from harness.files import parse_json

__all__ = ["LABEL", "Published", "publish"]

LABEL = "acceptance-nightly"
_DEADLINE = 120


@dataclass(frozen=True)
class Published:
    """The result of bringing an issue up to date.

    Attributes:
        done: `opened`, `commented`, `closed` or `nothing`.
        issue: Address of the issue; `None` if none is open or was opened.
    """

    done: str
    issue: str | None


def publish(*, title: str, body: str, green: bool, repository: str, label: str = LABEL) -> Published:
    """Bring a nightly's issue up to date.

    Args:
        title: Title of the issue, which must be the same every night: the open issue is found by label and title.
        body: Text of the issue or comment, as Markdown.
        green: Whether the nightly is green.
        repository: `owner/name`.
        label: Label of the issue, created if the repository does not have it.

    Raises:
        InputError: `gh` is not installed.
        EngineError: `gh` failed or timed out.
    """
    here = ("--repo", repository)
    found = _gh(
        "issue", "list", *here, "--label", label, "--state", "open", "--limit", "200", "--json", "number,title,url"
    )
    ours = sorted((entry["number"], entry["url"]) for entry in _list(found) if entry["title"] == title)
    if not ours:
        if green:
            return Published("nothing", None)
        _gh("label", "create", label, *here, "--force", "--color", "B60205", "--description", "a nightly is not green")
        opened = _gh_with(body, "issue", "create", *here, "--title", title, "--label", label)
        return Published("opened", opened.strip() or None)
    number, url = ours[0]
    _gh_with(body, "issue", "comment", str(number), *here)
    if not green:
        return Published("commented", url)
    _gh("issue", "close", str(number), *here, "--reason", "completed")
    return Published("closed", url)


def _list(text: str) -> list[dict[str, Any]]:
    try:
        entries = parse_json(text)
    except ValueError:
        entries = None
    keys = {"number", "title", "url"}
    if isinstance(entries, list) and all(isinstance(entry, dict) and keys <= set(entry) for entry in entries):
        return entries
    raise EngineError(f"gh issue list did not answer with a list of issues: {one_line(text, 240)}.")


def _gh_with(body: str, *arguments: str) -> str:
    """Run `gh` with a text in a file: a long one does not fit on a command line."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "body.md"
        file.write_text(body, encoding="utf-8")
        return _gh(*arguments, "--body-file", str(file))


def _gh(*arguments: str) -> str:
    command = ["gh", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE, check=False)  # noqa: S603
    except FileNotFoundError:
        raise InputError(
            "GitHub's command gh is not installed",
            key="gh",
            expected="gh on the PATH, as on GitHub's own runners",
            next_step="install it (https://cli.github.com), or run this step on a runner that has it",
        ) from None
    except subprocess.TimeoutExpired:
        raise EngineError(f"{_shown(arguments)} did not finish within {_DEADLINE} s.") from None
    if done.returncode != 0:
        raise EngineError(
            f"{_shown(arguments)} failed with status {done.returncode}: {one_line(done.stderr, 480)}. "
            "Next: make sure that GH_TOKEN is set and may write issues (permissions: issues: write)."
        )
    return done.stdout


def _shown(arguments: Sequence[str]) -> str:
    return one_line(json.dumps(["gh", *arguments], ensure_ascii=False), 240)
