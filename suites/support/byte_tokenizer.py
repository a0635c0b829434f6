"""A target folder that has nothing but a byte-level tokenizer with a chat template, and prompts tokenised by it."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from harness.pair.prompts import Prompt, read_prompt_lines
from harness.pair.tokenize import tokenize_prompts

QWEN = (
    "{% if tools %}<|system|># Tools\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)


def save_tokenizer(folder: Path, template: str | None) -> None:
    """Save a byte-level tokenizer, one token a byte, with a chat template."""
    vocabulary = {char: index for index, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    if template is not None:
        fast.chat_template = template
    fast.save_pretrained(folder)


def prompts_of(folder: Path, file: Path, template: str, thinking: bool | None = None) -> list[Prompt]:
    """Tokenize a prompts file by a target in `folder` that has nothing but a tokenizer."""
    save_tokenizer(folder, template)
    return tokenize_prompts(
        read_prompt_lines(file),
        file=file,
        pair_file=folder / "my.pair.toml",
        target=folder,
        vocab_size=256,
        longest=100_000,
        chat_template="target",
        thinking=thinking,
    )
