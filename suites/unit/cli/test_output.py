"""Nothing that comes from a file or a server controls the terminal."""

from __future__ import annotations

import re

import pytest
from rich.console import Group
from rich.table import Table
from rich.text import Text

from harness.cli import output

# Sets the window's title, clears the screen, hides what follows, turns the writing round, and erases a line.
EVIL = "a\x1b]0;owned\x07b\x1b[2Jc\x1b[8md\u202ee\x9b2Kf\rg\x08h[bold]i[/bold]"
SHOWN = "a\\x1b]0;owned\\x07b\\x1b[2Jc\\x1b[8md\\u202ee\\x9b2Kf"


def _report() -> Group:
    table = Table(box=None)
    table.add_column(EVIL)
    table.add_row(Text(EVIL, style="bold red"))
    return Group(Text(EVIL), table, EVIL)


def _controls(text: str) -> set[str]:
    return {char for char in text if not char.isprintable() and char != "\n"}


def test_a_report_is_printable(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_report(_report(), 1.5)
    out = capsys.readouterr().out
    assert _controls(out) == set()
    assert "owned" in out
    assert "[bold]i[/bold]" in out
    assert "1.5 s" in out


def test_colours_are_the_reports_own(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    output.print_report(_report())
    out = capsys.readouterr().out
    assert "\x1b[1;31m" in out
    assert _controls(re.sub(r"\x1b\[[0-9;]*m", "", out)) == set()
    assert "\x1b[8m" not in out


def test_an_error_is_printable_and_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    output.note(f"{EVIL}\n  the end of a log: {EVIL}")
    err = capsys.readouterr().err
    assert _controls(err) == set()
    assert err.count("\n") == 2
    assert SHOWN in err
