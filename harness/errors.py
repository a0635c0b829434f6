"""Errors that reach a user, each with the exit status that the command line ends with.

An error names the file and the key, the value found, the value expected and the next step. Code that reads a user's
file raises `InputError`; a traceback that reaches a user is a bug in the harness.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, get_args

if TYPE_CHECKING:
    import pydantic

__all__ = ["EngineError", "HarnessError", "InputError", "UnmeasuredError", "invalid", "one_line", "printable", "quote"]


class HarnessError(Exception):
    """Base of all errors of the harness; `exit_code` is the status with which the command line ends."""

    exit_code = 2


class InputError(HarnessError):
    """A file, option or setting that cannot be used as it is (exit 2).

    Args:
        problem: One sentence that says what is wrong, without the full stop.
        file: The file or folder at fault.
        key: The key, tensor, line or option at fault.
        found: Text is shown as it is, any other value as Python writes it.
        expected: The value, range or form that would have been accepted.
        next_step: An instruction to the user, without the full stop.
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
        self.key = None if key is None else one_line(key, 160)
        self.found = None if found is None else one_line(found if isinstance(found, str) else quote(found), 160)
        self.expected = None if expected is None else one_line(str(expected), 480)
        self.next_step = None if next_step is None else one_line(next_step, 480)
        super().__init__(self._paragraph())

    def _paragraph(self) -> str:
        # Cut from the left: the end of a path names the file.
        file = self.file and one_line(self.file if len(self.file) <= 480 else f"…{self.file[-480:]}")
        where = ": ".join(part for part in (file, self.key) if part)
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
        return one_line(text)


class UnmeasuredError(HarnessError):
    """The question cannot be answered, because nothing was measured (exit 3)."""

    exit_code = 3


class EngineError(HarnessError):
    """An engine failed while it ran (exit 4).

    Args:
        problem: What failed, without the full stop.
        log: The engine's log, a file of this machine.
        tail: The log's last lines, shown with its path.
    """

    exit_code = 4

    def __init__(self, problem: str, *, log: Path | None = None, tail: Sequence[str] = ()) -> None:
        self.problem = problem
        head = problem if log is None else f"{problem}; its log is {log}, the end of it:"
        # Logs and answers are shown as they came, but for what would control the terminal.
        super().__init__(printable("\n".join([head, *(f"  {line}" for line in tail)])))


def invalid(
    error: pydantic.ValidationError,
    model: type[pydantic.BaseModel],
    *,
    file: Path,
    where: str | None = None,
    next_step: str | None = None,
) -> InputError:
    """Return the first thing that pydantic found wrong in a user's file: one mistake at a time is enough to correct.

    Args:
        error: The exception that pydantic raised.
        model: The model that the file was read as, which knows the keys that would have been right.
        file: Where the data came from.
        where: The place within the file that the data came from, such as `line 3`.
        next_step: The user's next step; by default to add or correct the key.
    """
    first = error.errors(include_url=False)[0]
    location, message, value = first["loc"], one_line(first["msg"], 240), first["input"]
    name = ".".join(map(str, location))
    key = ", ".join(part for part in (where, name) if part) or None
    found: str | None = quote(value)
    expected: str | None = _SHOULD.sub("", _as_python_writes(message, first.get("ctx", {})))
    problem = "the value is not usable"
    match first["type"]:
        case "missing":
            # The value found is the object around the key: that it lacks the key says more.
            problem, found, expected = "the key is missing", None, None
            next_step = next_step or f"add {name}{f' to {where}' if where else ''}"
        case "extra_forbidden":
            problem, expected = "unknown key", f"one of {', '.join(sorted(_keys(model, location[:-1])))}"
        case "value_error":
            # Raised by one of our validators. Its message says what is wrong and, if that is a whole object, names the
            # values that matter: the object itself would be too long to read.
            problem, expected = message.removeprefix("Value error, "), None
            found = None if isinstance(value, dict | list | tuple) else found
            next_step = next_step or f"correct {name or 'the values'}{f' in {where}' if where else ''}"
    return InputError(problem, file=file, key=key, found=found, expected=expected, next_step=next_step)


# "Input should be a valid integer" is read after the word "expected".
_SHOULD = re.compile(r"^\w+ should (be|have) ")


def _as_python_writes(message: str, limits: Mapping[str, object]) -> str:
    """Return a message with its limit as Python writes it: 1e-12, which pydantic writes out as 0.000000000001."""
    for limit in limits.values():
        if isinstance(limit, float) and message.endswith(written := f"{Decimal(repr(limit)):f}"):
            return f"{message.removesuffix(written)}{limit!r}"
    return message


def _keys(model: type[pydantic.BaseModel], location: Sequence[int | str]) -> list[str]:
    """Return the keys of the object at a location, by the names that they have in a file."""
    for part in location:
        if isinstance(part, str) and part in model.model_fields:
            kind = model.model_fields[part].annotation
            model = next((one for one in (kind, *get_args(kind)) if hasattr(one, "model_fields")), model)
    return [field.serialization_alias or field.alias or name for name, field in model.model_fields.items()]


def quote(value: object) -> str:
    """Return a value from a user's file as Python writes it."""
    try:
        return repr(value)
    except (ValueError, RecursionError):
        # Python refuses to write integers of thousands of digits and lists nested a thousand deep.
        return f"a value of type {type(value).__name__} that is too large to show"


def one_line(text: str, limit: int | None = None) -> str:
    """Return printable text on one line: text from a file must not break a message or control the terminal."""
    text = " ".join(text.split()) or "nothing"
    if limit is not None and len(text) > limit:
        text = f"{text[: limit - 1]}…"
    return printable(text)


def printable(text: str) -> str:
    """Return text whose characters other than line breaks are printable: an escape would control the terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)
