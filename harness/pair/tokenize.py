"""Prompt lines to token ids, by the target's own tokenizer and a chat template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.errors import InputError
from harness.files import hash_ids
from harness.pair.chat import Chat
from harness.pair.prompts import Prompt, PromptLine
from harness.pair.quiet import quiet

__all__ = ["tokenize_prompts"]


def tokenize_prompts(
    lines: list[PromptLine],
    *,
    file: Path,
    pair_file: Path,
    target: Path,
    vocab_size: int,
    longest: int,
    chat_template: str,
    thinking: bool | None,
) -> list[Prompt]:
    """Turn prompt lines into token ids.

    Args:
        lines: The validated lines.
        file: The prompts file, for messages.
        pair_file: The pair file, for messages.
        target: The target's checkpoint folder, with its tokenizer.
        vocab_size: Size of the target's vocabulary; an id outside it is refused.
        longest: Most tokens a prompt may have, so that the text to decode still fits the models.
        chat_template: `target`, `none`, or the path of a Jinja file.
        thinking: Whether the template shall ask for thinking; left to the template if `None`.

    Raises:
        InputError: The tokenizer or template cannot be used, the template leaves out a part of a prompt, or a prompt is
            too long or outside the vocabulary.
    """
    encoder = _Encoder(target, chat_template, thinking)
    prompts = []
    for line in lines:
        ids = line.token_ids if line.token_ids is not None else encoder.encode(line, file)
        assert ids is not None
        if not ids:
            raise InputError(
                "the prompt is empty after tokenization",
                file=file,
                key=f"prompt {line.id!r}",
                expected="at least one token",
                next_step="check the chat template and the tokenizer on it",
            )
        if max(ids) >= vocab_size:
            raise InputError(
                "the prompt has a token outside the target's vocabulary",
                file=file,
                key=f"prompt {line.id!r}",
                found=max(ids),
                expected=f"ids below {vocab_size}",
                next_step="use the tokenizer of this target",
            )
        if len(ids) > longest:
            raise InputError(
                "the prompt is too long for the pair",
                file=file,
                key=f"prompt {line.id!r}",
                found=f"{len(ids)} tokens",
                expected=f"at most {longest}: max_position_embeddings of target and draft less the text to decode",
                next_step="shorten the prompt or lower decode.max_new_tokens",
            )
        prompts.append(Prompt(line.id, line.category, tuple(ids), hash_ids(list(ids))))
    encoder.chat.require_thinking_heeded(pair_file)
    return prompts


class _Encoder:
    """The target's tokenizer, loaded when the first text needs it."""

    def __init__(self, target: Path, chat_template: str, thinking: bool | None) -> None:
        self.target = target
        self.chat_template = chat_template
        self.chat = Chat(lambda: self.tokenizer, target, chat_template, thinking)
        self._tokenizer: Any = None

    @property
    def tokenizer(self) -> Any:
        if self._tokenizer is None:
            import transformers

            try:
                with quiet():
                    self._tokenizer = transformers.AutoTokenizer.from_pretrained(
                        str(self.target), local_files_only=True, trust_remote_code=False
                    )
            except Exception as error:  # noqa: BLE001 - the tokenizers library raises bare Exception on a broken file
                raise InputError(
                    "the target's tokenizer cannot be loaded",
                    file=self.target,
                    found=f"{type(error).__name__}: {error}",
                    expected="tokenizer.json and tokenizer_config.json of a Hugging Face checkpoint",
                ) from None
        return self._tokenizer

    def encode(self, line: PromptLine, file: Path) -> list[int]:
        if self.chat_template == "none":
            if line.messages is not None:
                raise InputError(
                    "messages need a chat template",
                    file=file,
                    key=f"prompt {line.id!r}",
                    next_step='set chat_template = "target" in the pair file',
                )
            return self._ids(line, file, line.text)
        # The template writes its own special tokens: adding the tokenizer's too would double them.
        return self._ids(line, file, self.chat.render(line, file), add_special_tokens=False)

    def _ids(self, line: PromptLine, file: Path, text: object, **options: bool) -> list[int]:
        tokenizer = self.tokenizer
        try:
            with quiet():
                return [int(value) for value in tokenizer(text, **options).input_ids]
        except Exception as error:  # noqa: BLE001 - a template can return invalid Unicode, or something other than text
            raise InputError(
                "the prompt cannot be tokenized",
                file=file,
                key=f"prompt {line.id!r}",
                found=f"{type(error).__name__}: {error}",
                expected="Unicode text",
            ) from None
