"""Messages to text by a chat template, the target's or the user's, and refusal of a template that drops a part."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.errors import InputError
from harness.files import read_text
from harness.pair.prompts import PromptLine
from harness.pair.quiet import quiet

__all__ = ["Chat"]

# The name of the switch in templates: Qwen, GLM and most others use the first, DeepSeek and Kimi the second.
_THINKING = ("enable_thinking", "thinking")
# Some templates write today's date: tomorrow every prompt would be another one, and every golden would be refused.
_NOW = datetime(2025, 1, 1, 12, tzinfo=UTC)
_CLOCK = "strftime_now"


class Chat:
    """A chat template that must write every part of a prompt, and must heed `thinking` if the pair file sets it.

    Args:
        tokenizer: Returns the target's tokenizer; called when the first message needs it.
        target: The target's checkpoint folder, for messages.
        template: `target` for the tokenizer's own, or the path of a Jinja file.
        thinking: Whether the target shall think; left to the template if `None`.
    """

    def __init__(self, tokenizer: Callable[[], Any], target: Path, template: str, thinking: bool | None) -> None:
        self._tokenizer = tokenizer
        self._target = target
        self._file = None if template == "target" else Path(template)
        self._source: str | None = None
        self._thinking = thinking
        # Whether any prompt differs with and without thinking; `None` until a prompt is rendered.
        self._heeds_thinking: bool | None = None

    def render(self, line: PromptLine, file: Path) -> str:
        """Return the text of a prompt, special tokens and the opening of the answer included.

        Args:
            line: A prompt of text or messages; text is one message of the user.
            file: The prompts file, for messages.

        Raises:
            InputError: The template is missing, refuses the prompt or leaves out a part of it.
        """
        messages = (
            [{"role": "user", "content": line.text}]
            if line.messages is None
            else [message.model_dump() for message in line.messages]
        )
        self._require_template()
        try:
            text = self._apply(messages, line.tools, self._thinking)
        except Exception as error:  # noqa: BLE001 - a template may raise anything it likes
            raise self._refusal(messages, line, file, error) from None
        self._require_whole(text, messages, line, file)
        if self._thinking is not None and not self._heeds_thinking:
            self._heeds_thinking = text != self._apply(messages, line.tools, not self._thinking)
        return text

    def require_thinking_heeded(self, pair_file: Path | None) -> None:
        """Refuse a pair file's `thinking` if it did not change any of the rendered prompts.

        Raises:
            InputError: The template ignores it.
        """
        if self._heeds_thinking is False:
            raise InputError(
                "the chat template ignores thinking: every prompt is the same with and without it",
                file=pair_file,
                key="thinking",
                found=str(self._thinking).lower(),
                expected=f"a template that reads {' or '.join(_THINKING)}",
                next_step="leave thinking out of the pair file, or name a chat_template that has the switch",
            )

    def _require_template(self) -> None:
        if self._file is not None:
            self._source = self._source or read_text(self._file, what="chat template")
        elif not self._tokenizer().chat_template:
            raise InputError(
                "the target's tokenizer does not have a chat template",
                file=self._target,
                key="chat_template",
                next_step='set chat_template = "none" in the pair file, or name a template file',
            )

    def _apply(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, thinking: bool | None) -> str:
        tokenizer = self._tokenizer()
        options = {} if thinking is None else dict.fromkeys(_THINKING, thinking)
        with quiet():
            # A tokenizer may have several templates, one of them for tools.
            template = _stop_clock(str(tokenizer.get_chat_template(self._source, tools)))
            return str(
                tokenizer.apply_chat_template(
                    messages, tools=tools, chat_template=template, add_generation_prompt=True, tokenize=False, **options
                )
            )

    def _refusal(self, messages: list[dict[str, Any]], line: PromptLine, file: Path, error: Exception) -> InputError:
        """Return why a prompt cannot be rendered; a refused system role, being common, has its own message."""
        found = f"{type(error).__name__}: {error}"
        others = [message for message in messages if message["role"] != "system"]
        if len(others) < len(messages) and self._renders(others, line.tools):
            return InputError(
                "the chat template refuses the system role",
                file=file,
                key=f"prompt {line.id!r}",
                found=found,
                expected=f"messages that the template in {self._name} accepts",
                next_step="move the system message into the first user message, or name another chat_template",
            )
        return InputError(
            "the chat template cannot be applied",
            file=file,
            key=f"prompt {line.id!r}",
            found=found,
            expected=f"messages that the template in {self._name} accepts",
        )

    def _renders(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> bool:
        try:
            self._apply(messages, tools, self._thinking)
        except Exception:  # noqa: BLE001 - as above
            return False
        return True

    def _require_whole(self, text: str, messages: list[dict[str, Any]], line: PromptLine, file: Path) -> None:
        """Refuse a template that silently leaves out a part: the model would be asked something else."""
        for message in messages:
            content = message["content"]
            if message["role"] == "system" and isinstance(content, str) and content.strip() not in text:
                raise InputError(
                    "the chat template leaves out the system message",
                    file=file,
                    key=f"prompt {line.id!r}",
                    found=content,
                    expected=f"a template that writes it; {self._name} does not",
                    next_step="move the system message into the first user message, or name another chat_template",
                )
        if line.tools and text == self._apply(messages, None, self._thinking):
            raise InputError(
                "the chat template leaves out the tools",
                file=file,
                key=f"prompt {line.id!r}, tools",
                found=f"the same text with {len(line.tools)} tools as without",
                expected=f"a template that describes tools; {self._name} does not",
                next_step="describe the tools in the system message, or name another chat_template",
            )

    @property
    def _name(self) -> str:
        return str(self._target if self._file is None else self._file)


def _stop_clock(template: str) -> str:
    """Return a template in which today is always the same day.

    transformers gives templates its own clock and does not accept another, so the template defines one itself.
    """
    if _CLOCK not in template:
        return template
    replacements = "".join(f"|replace('%{letter}', '{_NOW.strftime(f'%{letter}')}')" for letter in "aAbBdHIjmMpSyY")
    # Jinja drops the first line feed after a block: this one, and not one of the template's own.
    return (
        f"{{% macro {_CLOCK}(format) %}}{{{{ format|replace('%-', '%'){replacements} }}}}{{% endmacro %}}\n{template}"
    )
