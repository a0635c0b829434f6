"""Output of the command line: reports and JSON on stdout, progress and errors on stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from harness.errors import printable
from harness.files import json_text
from harness.report.bodies.base import Body, ErrorBody, ErrorDetails, plain

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from harness.engines.base import Progress

__all__ = ["fail", "leave_stdout", "note", "print_json", "print_report", "progress", "usage_message"]


def print_json(body: Body | dict[str, Any]) -> None:
    """Print a command's body as one JSON object; see `json_text`."""
    printed = plain(body)
    text = json_text(printed)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        # The stream's encoding lacks a character, or a path has bytes that are not text: JSON can escape both.
        text = json_text(printed, ascii_only=True)
    with _reader():
        print(text)  # noqa: T201


@contextlib.contextmanager
def _reader() -> Iterator[None]:
    """Ignore a closed pipe (`harness … | head`) while the block prints: it must not change the exit status."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        leave_stdout()


def leave_stdout() -> None:
    """Discard the rest of stdout, including the text that Python flushes when it exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def print_report(report: RenderableType, seconds: float | None = None) -> None:
    """Print a report for people, and the seconds that it took."""
    from rich.console import Console

    # No markup: names from users' files are printed, and rich would take brackets in them for styles.
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=not sys.stdout.isatty())
    # By default rich would exit with status 1, whatever the verdict is.
    console.on_broken_pipe = leave_stdout  # type: ignore[method-assign]
    with _reader():
        console.print(_Printable(report))
        if seconds is not None:
            console.print(f"{seconds:.1f} s", style="dim")


class _Printable:
    """A report without characters that would control the terminal: parts of it come from files and servers.

    Args:
        report: What is printed.
    """

    def __init__(self, report: RenderableType) -> None:
        self._report = report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        for segment in console.render(self._report, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def note(text: str) -> None:
    """Print text on stderr."""
    print(printable(text), file=sys.stderr)  # noqa: T201


@contextlib.contextmanager
def progress(*, quiet: bool) -> Iterator[Progress]:
    """Show a progress bar on stderr while the block runs, unless `quiet` is set or stderr is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    from harness.engines.base import Progress

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        tasks: list[Any] = [bar.add_task("loading", total=None)]

        def begin(what: str, total: int) -> None:
            bar.remove_task(tasks.pop())
            tasks.append(bar.add_task(what, total=total))

        yield Progress(begin, lambda count: bar.advance(tasks[-1], count))


def fail(error: ErrorDetails, *, as_json: bool) -> int:
    """Print an error, as one paragraph on stderr and, if asked, as one JSON object on stdout; return its status."""
    note(f"error: {error.message}")
    if as_json:
        print_json(ErrorBody(error))
    return error.exit_code


def usage_message(error: Exception) -> str | None:
    """Return the message of an option parser's usage error, `None` for any other error."""
    format_message = getattr(error, "format_message", None)
    if format_message is None or not hasattr(error, "exit_code"):
        return None
    return f"{format_message().rstrip('.')}. Next: see --help."
