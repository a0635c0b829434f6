"""The built-in prompt sets for real models: what they hold, and that a pair file can name them."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest
from tokenizers import pre_tokenizers

from fixtures.prompts.build import chat_80
from harness.errors import InputError
from harness.pair.pair import load_pair
from harness.pair.prompts import PromptLine, read_prompt_lines
from suites.support.builtin_pairs import FIXTURES
from suites.support.byte_tokenizer import QWEN, prompts_of
from suites.support.random_pair import PAIR, write_pair

FOLDER = FIXTURES / "prompts"
CATEGORIES = (
    "chat",
    "code",
    "math",
    "translation",
    "summarisation",
    "extraction",
    "tool-calls",
    "long-context",
)


def _lines(name: str) -> list[PromptLine]:
    return read_prompt_lines(FOLDER / f"{name}.jsonl")


def _words(line: PromptLine) -> str:
    assert line.messages is not None
    return "\n".join(str(message.content) for message in line.messages)


def _least_tokens(line: PromptLine) -> int:
    """Return how many pieces the text has before any merges of bytes: no byte-level BPE makes fewer tokens of it."""
    return len(pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(_words(line)))


def test_ten_prompts_of_each_of_eight_categories() -> None:
    assert Counter(line.category for line in _lines("chat-80")) == dict.fromkeys(CATEGORIES, 10)
    short = {name: 10 for name in CATEGORIES if name != "long-context"}
    assert Counter(line.category for line in _lines("chat-70")) == short


def test_the_first_n_prompts_are_of_all_categories() -> None:
    lines = _lines("chat-80")
    for start in range(0, 80, 8):
        assert [line.category for line in lines[start : start + 8]] == list(CATEGORIES)


def test_the_file_is_what_its_script_writes() -> None:
    assert (FOLDER / "chat-80.jsonl").read_text(encoding="utf-8") == chat_80()


def test_every_prompt_asks_something_of_its_own() -> None:
    lines = _lines("chat-80")
    assert len({line.id for line in lines}) == 80
    for line in lines:
        assert line.messages is not None
        assert line.messages[-1].role in ("user", "tool"), line.id
        for message in line.messages:
            assert str(message.content).strip() or message.role == "assistant", line.id


def test_no_two_prompts_are_near_duplicates() -> None:
    """Of the runs of four words of the shorter of two prompts, less than a tenth stand in the other."""
    shingles = {}
    for line in _lines("chat-80"):
        words = re.findall(r"\w+", _words(line).lower())
        shingles[line.id] = {tuple(words[start : start + 4]) for start in range(max(1, len(words) - 3))}
    shares = {
        (a, b): len(shingles[a] & shingles[b]) / min(len(shingles[a]), len(shingles[b]))
        for a, b in combinations(shingles, 2)
    }
    worst = max(shares, key=lambda pair: shares[pair])
    assert shares[worst] < 0.1, (worst, shares[worst])


def test_lengths_are_spread() -> None:
    lines = _lines("chat-80")
    long = [_least_tokens(line) for line in lines if line.category == "long-context"]
    short = sorted(_least_tokens(line) for line in lines if line.category != "long-context")
    assert min(long) > 2000
    assert short[0] < 20
    assert short[len(short) // 2] > 60
    assert short[-1] > 250
    # A public draft of 2048 positions takes every prompt of chat-70 with 512 tokens of answer. Bytes are an upper
    # bound of byte-level tokens; four of them make one in English, and two in the languages with other scripts.
    assert max(len(_words(line).encode()) / 2 for line in lines if line.category != "long-context") < 2048 - 512


def test_chats_of_several_turns_system_messages_and_called_tools() -> None:
    lines = _lines("chat-80")
    turns = Counter(sum(message.role == "assistant" for message in line.messages or []) for line in lines)
    assert turns[1] >= 8
    assert sum((line.messages or [])[0].role == "system" for line in lines) >= 6
    tools = [line for line in lines if line.category == "tool-calls"]
    assert all(line.tools for line in tools)
    assert sum((line.messages or [])[-1].role == "tool" for line in tools) >= 2


def test_tools_are_schemas_and_calls_fit_them() -> None:
    for line in _lines("chat-80"):
        known = {tool["function"]["name"]: tool["function"]["parameters"] for tool in line.tools or []}
        for schema in known.values():
            assert set(schema["required"]) <= set(schema["properties"]), line.id
        for message in line.messages or []:
            for call in (message.model_extra or {}).get("tool_calls", []):
                schema, given = known[call["function"]["name"]], set(call["function"]["arguments"])
                assert set(schema["required"]) <= given <= set(schema["properties"]), line.id


@pytest.mark.parametrize("name", ["chat-70", "chat-80"])
def test_a_template_with_tools_and_thinking_takes_the_whole_set(name: str, tmp_path: Path) -> None:
    prompts = prompts_of(tmp_path, FOLDER / f"{name}.jsonl", QWEN, thinking=False)
    assert len({prompt.hash for prompt in prompts}) == len(prompts) == len(_lines(name))


def _named(folder: Path, value: str) -> Path:
    return write_pair(folder, pair=PAIR.replace('prompts = "prompts.jsonl"', f'prompts = "{value}"'))


def test_a_pair_file_names_a_set(tmp_path: Path) -> None:
    assert load_pair(_named(tmp_path, "chat-80")).prompts_file == FOLDER / "chat-80.jsonl"


def test_a_file_wins_over_a_set_of_the_same_name(tmp_path: Path) -> None:
    file = _named(tmp_path, "chat-80")
    shutil.copy(tmp_path / "prompts.jsonl", tmp_path / "chat-80")
    assert load_pair(file).prompts_file == tmp_path / "chat-80"


def test_an_unknown_set_is_told_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="one of: chat-70, chat-80") as caught:
        load_pair(_named(tmp_path, "chat-81"))
    assert (caught.value.key, caught.value.found) == ("prompts", "chat-81")


def test_no_line_speaks_of_a_schema_that_json_cannot_hold() -> None:
    for line in (FOLDER / "chat-80.jsonl").read_text(encoding="utf-8").splitlines():
        assert json.loads(line) == json.loads(json.dumps(json.loads(line), allow_nan=False))
