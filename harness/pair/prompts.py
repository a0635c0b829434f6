"""The prompts file: JSON Lines, one prompt per line, validated before anything is run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic

from harness.errors import InputError, invalid, quote
from harness.files import parse_json, read_text

__all__ = ["Prompt", "PromptLine", "read_prompt_lines", "select_prompts"]


class Message(pydantic.BaseModel):
    """One message of a chat."""

    model_config = pydantic.ConfigDict(extra="allow", frozen=True)
    role: str = pydantic.Field(min_length=1)
    content: Any


def _require_unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the text is not Unicode: half a surrogate pair at {error.start}") from None
    return text


class PromptLine(pydantic.BaseModel):
    """One line of the prompts file, before it is turned into token ids.

    Attributes:
        id: Unique name.
        category: The kind of prompt, by which reports group.
        text: The question, as plain text.
        messages: A chat.
        token_ids: The prompt as the target sees it.
        tools: Functions that the chat may call, each a JSON schema as chat templates take them; with `messages` only.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)
    id: str = pydantic.Field(min_length=1)
    category: str = "prompt"
    text: Annotated[str, pydantic.AfterValidator(_require_unicode)] | None = None
    messages: list[Message] | None = None
    token_ids: list[pydantic.NonNegativeInt] | None = None
    tools: Annotated[list[dict[str, Any]], pydantic.Field(min_length=1)] | None = None

    @property
    def kind(self) -> Literal["text", "messages", "token_ids"]:
        """The form of the line, one of three."""
        return "text" if self.text is not None else "messages" if self.messages is not None else "token_ids"


@dataclass(frozen=True)
class Prompt:
    """A prompt as the target sees it.

    Attributes:
        id: Unique name.
        category: The kind of prompt, by which reports group.
        ids: Token ids, special tokens and chat template included.
        hash: 16 hexadecimal digits over the token ids.
    """

    id: str
    category: str
    ids: tuple[int, ...]
    hash: str


def read_prompt_lines(path: Path) -> list[PromptLine]:
    """Read and validate a prompts file. Blank lines are skipped.

    Raises:
        InputError: The file is missing or empty, or a line is broken, empty or a duplicate.
    """
    lines: list[PromptLine] = []
    first_seen: dict[str, int] = {}
    for number, text in enumerate(read_text(path, what="prompts file").split("\n"), start=1):
        if not text.strip():
            continue
        line = _read_line(text, path, number)
        if line.id in first_seen:
            raise InputError(
                "the prompt id is used twice",
                file=path,
                key=f"line {number}",
                found=line.id,
                expected=f"an id other than that of line {first_seen[line.id]}",
            )
        first_seen[line.id] = number
        lines.append(line)
    if not lines:
        raise InputError("the prompts file is empty", file=path, found="no line", expected="at least one line")
    return lines


_FORMS = ("text", "messages", "token_ids")
_LINE_FORM = "one object with id and one of text, messages, token_ids"


def _read_line(text: str, path: Path, number: int) -> PromptLine:
    where = f"line {number}"
    try:
        raw = parse_json(text)
    except ValueError as error:
        raise InputError(
            "the line is not valid JSON", file=path, key=where, found=str(error), expected=_LINE_FORM
        ) from None
    if not isinstance(raw, dict):
        raise InputError(
            "the line is not a JSON object", file=path, key=where, found=type(raw).__name__, expected=_LINE_FORM
        )
    try:
        line = PromptLine.model_validate(raw)
    except pydantic.ValidationError as error:
        raise invalid(error, PromptLine, file=path, where=where) from None
    given = [name for name in _FORMS if getattr(line, name) is not None]
    if len(given) != 1:
        raise InputError(
            "a prompt must have exactly one form",
            file=path,
            key=where,
            found=" and ".join(given) or "none",
            expected="one of text, messages, token_ids",
        )
    value = getattr(line, given[0])
    if not value or (isinstance(value, str) and not value.strip()):
        raise InputError(
            "the prompt is empty",
            file=path,
            key=f"{where}, {given[0]}",
            found=quote(value),
            expected="at least one character or token",
        )
    if line.tools is not None and line.messages is None:
        raise InputError(
            "tools need messages, into which a chat template writes them",
            file=path,
            key=f"{where}, tools",
            found=f"tools next to {given[0]}",
            expected="messages",
            next_step="write the prompt as messages, or leave the tools out",
        )
    return line


def select_prompts(lines: list[PromptLine], selection: str | None, path: Path) -> list[PromptLine]:
    """Return the prompts that `--prompts` asks for: the first N, or ids separated by commas; all if it is `None`.

    Raises:
        InputError: The number is out of range, or an id is unknown.
    """
    if selection is None:
        return lines
    if selection.strip().isdecimal():
        # Python refuses an integer of thousands of digits.
        count = int(selection) if len(selection) < 100 else len(lines) + 1
        if not 1 <= count <= len(lines):
            raise InputError(
                "no such number of prompts",
                file=path,
                key="--prompts",
                found=selection,
                expected=f"a number from 1 to {len(lines)}, or ids",
            )
        return lines[:count]
    wanted = [part.strip() for part in selection.split(",") if part.strip()]
    known = {line.id for line in lines}
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise InputError(
            "no such prompt",
            file=path,
            key="--prompts",
            found=", ".join(unknown) or selection,
            expected=f"a number, or ids such as {lines[0].id!r}",
        )
    return [line for line in lines if line.id in set(wanted)]
