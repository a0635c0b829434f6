"""Messages through chat templates, by transformers' own code and a tokenizer built here.

The templates are written after the kinds that public models have: one that refuses the system role, ones that switch
thinking under either name, ones that write tools or the date, and ones that leave out what they were given.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from harness.errors import InputError
from harness.pair.pair import load_pair, load_prompts
from suites.support.byte_tokenizer import QWEN, prompts_of, save_tokenizer
from suites.support.random_pair import PAIR, write_pair

TURNS = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
REFUSES_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + TURNS
)
DROPS_SYSTEM = TURNS.replace("in messages", "in messages if m.role != 'system'")
KIMI = QWEN.replace("enable_thinking", "thinking")
DATED = "\n{% macro day(form) %}{{ strftime_now(form) }}{% endmacro %}<|system|>Today: {{ day('%d %b %Y') }}" + TURNS

USER: dict[str, Any] = {"role": "user", "content": "hello"}
SYSTEM: dict[str, Any] = {"role": "system", "content": "be brief"}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}


def texts(folder: Path, template: str, lines: list[dict[str, Any]], thinking: bool | None = None) -> list[str]:
    """Return what the target is asked, decoded."""
    file = folder / "prompts.jsonl"
    file.write_text("".join(json.dumps({"id": f"p{number}", **line}) + "\n" for number, line in enumerate(lines)))
    prompts = prompts_of(folder, file, template, thinking)
    decode = AutoTokenizer.from_pretrained(str(folder)).decode
    return [str(decode(list(prompt.ids))) for prompt in prompts]


def test_a_template_writes_every_turn_and_opens_the_answer(tmp_path: Path) -> None:
    line = {"messages": [SYSTEM, USER, {"role": "assistant", "content": "yes?"}, {"role": "user", "content": "go"}]}
    expected = "<|system|>be brief<|user|>hello<|assistant|>yes?<|user|>go<|assistant|>"
    assert texts(tmp_path, TURNS, [line]) == [expected]


def test_a_refused_system_role_is_told_with_the_prompt(tmp_path: Path) -> None:
    lines = [{"messages": [USER]}, {"messages": [SYSTEM, USER]}]
    with pytest.raises(InputError, match="refuses the system role") as caught:
        texts(tmp_path, REFUSES_SYSTEM, lines)
    assert caught.value.key == "prompt 'p1'"
    assert "System role not supported" in str(caught.value)
    assert "first user message" in str(caught.value)


def test_another_refusal_is_not_blamed_on_the_system_role(tmp_path: Path) -> None:
    template = "{{ raise_exception('no') }}"
    with pytest.raises(InputError, match="cannot be applied"):
        texts(tmp_path, template, [{"messages": [SYSTEM, USER]}])


def test_a_system_message_left_out_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leaves out the system message"):
        texts(tmp_path, DROPS_SYSTEM, [{"messages": [SYSTEM, USER]}])
    assert texts(tmp_path, DROPS_SYSTEM, [{"messages": [USER]}]) == ["<|user|>hello<|assistant|>"]


@pytest.mark.parametrize("template", [QWEN, KIMI], ids=["enable_thinking", "thinking"])
def test_thinking_under_either_name(template: str, tmp_path: Path) -> None:
    closed = "<|user|>hello<|assistant|><think>\n\n</think>\n\n"
    assert texts(tmp_path, template, [{"text": "hello"}], thinking=False) == [closed]
    for thinking in (None, True):
        assert texts(tmp_path, template, [{"text": "hello"}], thinking) == ["<|user|>hello<|assistant|>"]


@pytest.mark.parametrize("thinking", [True, False])
def test_a_template_that_ignores_thinking_is_told(thinking: bool, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ignores thinking") as caught:
        texts(tmp_path, TURNS, [{"text": "hello"}], thinking)
    assert caught.value.key == "thinking"
    assert caught.value.file == str(tmp_path / "my.pair.toml")
    assert texts(tmp_path, TURNS, [{"text": "hello"}]) == ["<|user|>hello<|assistant|>"]


def test_one_prompt_that_heeds_thinking_is_enough(tmp_path: Path) -> None:
    template = QWEN.replace("is false", "is false and messages[-1].content == 'go'")
    lines = [{"text": "hello"}, {"text": "go"}, {"text": "hello"}]
    assert [text.count("</think>") for text in texts(tmp_path, template, lines, thinking=False)] == [0, 1, 0]


def test_tools_reach_the_template(tmp_path: Path) -> None:
    calls = [{"type": "function", "function": {"name": "look_up", "arguments": {"word": "hedge"}}}]
    messages = [USER, {"role": "assistant", "content": "", "tool_calls": calls}, {"role": "tool", "content": "a fence"}]
    (text,) = texts(tmp_path, QWEN, [{"messages": messages, "tools": [TOOL]}])
    assert text.startswith('<|system|># Tools\n{"type": "function", "function": {"name": "look_up"')
    assert '<tool_call>{"name": "look_up", "arguments": {"word": "hedge"}}</tool_call><|tool|>a fence' in text


def test_tools_left_out_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leaves out the tools") as caught:
        texts(tmp_path, TURNS, [{"messages": [USER], "tools": [TOOL]}])
    assert caught.value.key == "prompt 'p0', tools"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"text": "hello", "tools": [TOOL]}, "tools need messages"),
        ({"token_ids": [1], "tools": [TOOL]}, "tools need messages"),
        ({"messages": [USER], "tools": []}, "at least 1 item"),
        ({"messages": [USER], "tools": ["look_up"]}, "valid dictionary"),
    ],
)
def test_unusable_tools(line: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says) as caught:
        texts(tmp_path, QWEN, [line])
    assert str(caught.value.key).startswith("line 1, tools")


def test_a_date_in_the_template_does_not_change_the_prompts(tmp_path: Path) -> None:
    """What a template calls today is the same day always: tomorrow's prompts are those of the golden."""
    (text,) = texts(tmp_path, DATED, [{"text": "hello"}])
    assert text == "\n<|system|>Today: 01 Jan 2025<|user|>hello<|assistant|>"


def test_thinking_is_read_from_the_pair_file_and_its_error_names_it(tmp_path: Path) -> None:
    file = write_pair(tmp_path, pair="thinking = true\n" + PAIR.replace('"none"', '"target"'))
    (tmp_path / "prompts.jsonl").write_text('{"id": "a", "text": "!"}\n')
    save_tokenizer(tmp_path / "target", "{{ messages[0].content }}")
    with pytest.raises(InputError, match="ignores thinking") as caught:
        load_prompts(load_pair(file))
    assert caught.value.file == str(file)
