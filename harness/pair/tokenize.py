"""Prompt lines to token ids, by the target's own tokenizer and chat template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.errors import InputError
from harness.files import hash_ids, read_text
from harness.pair.prompts import Prompt, PromptLine
from harness.pair.quiet import quiet

__all__ = ["tokenize_prompts"]


def tokenize_prompts(
    lines: list[PromptLine],
    *,
    file: Path,
    target: Path,
    vocab_size: int,
    longest: int,
    chat_template: str,
    thinking: bool | None,
) -> list[Prompt]:
    """Turn prompt lines into token ids.

    Args:
        lines: The lines, validated.
        file: Where they came from, for messages.
        target: The target's checkpoint folder, with its tokenizer.
        vocab_size: The target's vocabulary; an id outside it is refused.
        longest: Most tokens a prompt may have, so that the text to decode still fits the models.
        chat_template: `target`, `none`, or the path of a Jinja file.
        thinking: Passed to the template as `enable_thinking`; left to the template where `None`.

    Raises:
        InputError: The tokenizer or template cannot be used, or a prompt is too long or outside the vocabulary.
    """
    encoder = _Encoder(target, chat_template, thinking)
    prompts = []
    for line in lines:
        ids = line.token_ids if line.token_ids is not None else encoder.encode(line, file)
        assert ids is not None
        if not ids:
            raise InputError(
                "the prompt has no tokens",
                file=file,
                key=f"prompt {line.id!r}",
                expected="at least one token",
                next_step="see what the chat template and the tokenizer make of it",
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
    return prompts


class _Encoder:
    """The target's tokenizer, loaded when the first text needs it."""

    def __init__(self, target: Path, chat_template: str, thinking: bool | None) -> None:
        self.target = target
        self.chat_template = chat_template
        self.thinking = thinking
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
        messages = (
            [{"role": "user", "content": line.text}]
            if line.messages is None
            else [message.model_dump() for message in line.messages]
        )
        options: dict[str, Any] = {} if self.thinking is None else {"enable_thinking": self.thinking}
        template = None
        if self.chat_template != "target":
            template = read_text(Path(self.chat_template), what="chat template")
        elif not self.tokenizer.chat_template:
            raise InputError(
                "the target's tokenizer has no chat template",
                file=self.target,
                key="chat_template",
                next_step='set chat_template = "none" in the pair file, or name a template file',
            )
        try:
            with quiet():
                text = self.tokenizer.apply_chat_template(
                    messages, chat_template=template, add_generation_prompt=True, tokenize=False, **options
                )
        except Exception as error:  # noqa: BLE001 - a template may raise anything it likes
            raise InputError(
                "the chat template cannot be applied",
                file=file,
                key=f"prompt {line.id!r}",
                found=f"{type(error).__name__}: {error}",
                expected=f"messages that {self.target if template is None else self.chat_template} has a template for",
            ) from None
        # The template writes its own special tokens: adding the tokenizer's too would double them.
        return self._ids(line, file, text, add_special_tokens=False)

    def _ids(self, line: PromptLine, file: Path, text: object, **options: bool) -> list[int]:
        tokenizer = self.tokenizer
        try:
            with quiet():
                return [int(value) for value in tokenizer(text, **options).input_ids]
        except Exception as error:  # noqa: BLE001 - a template can give what is no Unicode, or no text at all
            raise InputError(
                "the prompt cannot be tokenized",
                file=file,
                key=f"prompt {line.id!r}",
                found=f"{type(error).__name__}: {error}",
                expected="Unicode text",
            ) from None
