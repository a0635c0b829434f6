"""The errors a user can meet, each with the exit status of the command line.

An error says what was found and what was expected, where, and what to do next. Whatever reads a file a user handed us
raises `InputError`; a traceback that reaches a user is a bug in the harness.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["EngineError", "HarnessError", "InputError", "UnmeasuredError"]


class HarnessError(Exception):
    """Base of all errors of the harness; `exit_code` is the status with which the command line ends."""

    exit_code = 2

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that `--json` prints under `error`."""
        return {"type": type(self).__name__, "message": str(self), "exit_code": self.exit_code}


class InputError(HarnessError):
    """A file, option or setting that cannot be used as it stands (exit 2).

    Args:
        problem: What is wrong, one sentence without a final full stop.
        file: The file or folder it was found in.
        key: The key, tensor, line or option at fault.
        found: The value found.
        expected: The value, range or form expected.
        next_step: What the user should do now.
    """

    exit_code = 2

    def __init__(
        self,
        problem: str,
        *,
        file: Path | str | None = None,
        key: str | None = None,
        found: object = None,
        expected: object = None,
        next_step: str | None = None,
    ) -> None:
        self.problem = problem
        self.file = None if file is None else str(file)
        self.key = key
        self.found = None if found is None else _shorten(found)
        self.expected = None if expected is None else str(expected)
        self.next_step = next_step
        super().__init__(self._paragraph())

    def _paragraph(self) -> str:
        where = ": ".join(part for part in (self.file, self.key) if part)
        text = f"{where}: {self.problem}" if where else self.problem
        facts = [
            f"{name} {value}"
            for name, value in (("found", self.found), ("expected", self.expected))
            if value is not None
        ]
        if facts:
            text += f" ({', '.join(facts)})"
        text += "."
        if self.next_step:
            text += f" Next: {self.next_step.rstrip('.')}."
        return text

    def to_dict(self) -> dict[str, Any]:
        """Return the error's parts beside its message."""
        parts = {
            "file": self.file,
            "key": self.key,
            "found": self.found,
            "expected": self.expected,
            "next_step": self.next_step,
        }
        return super().to_dict() | parts


class UnmeasuredError(HarnessError):
    """The thing asked about could not be judged: nothing was measured (exit 3)."""

    exit_code = 3


class EngineError(HarnessError):
    """An engine failed while it ran (exit 4)."""

    exit_code = 4


def _shorten(value: object, limit: int = 160) -> str:
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split())
    if not text:
        return "nothing"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
