"""Damage to the prompts file, and to what turns its texts into tokens."""

from __future__ import annotations

from typing import Any

from suites.support.damage.editing import (
    DEEP,
    GOLDEN,
    PROMPTS,
    Damage,
    add_tokenizer,
    all_of,
    change_prompts,
    into_folder,
    pair_text,
    prepend,
    remove,
    replace_line,
    truncate,
    write,
)
from suites.support.random_pair import VOCAB


def _bad(name: str, number: int, text: str, *says: str) -> Damage:
    """Return a prompts file of which one line is another."""
    return Damage(f"prompt {name}", replace_line(number, text), (PROMPTS, f"line {number}", *says))


def _text(name: str, line: dict[str, Any], *says: str, template: str | None = "{{ messages }}") -> Damage:
    """Return a prompt that needs the tokenizer."""
    changes = (
        lambda root: add_tokenizer(root, template=template),
        pair_text('chat_template = "none"\n', ""),
        change_prompts(lambda lines: lines.append({"id": "x", **line})),
    )
    return Damage(f"prompt {name}", all_of(*changes), says, ("measure", "PAIR"))


_WORDS = {"messages": [{"role": "user", "content": "w1 w2"}]}

_WHOLE = [
    Damage("prompts missing", remove(PROMPTS), (PROMPTS, "does not exist", "Next:")),
    Damage("prompts are a folder", into_folder(PROMPTS), (PROMPTS, "cannot be read", "a file")),
    Damage("prompts empty", write(PROMPTS, b""), (PROMPTS, "the prompts file is empty", "at least one line")),
    Damage("prompts blank", write(PROMPTS, b"\n  \n\r\n"), (PROMPTS, "the prompts file is empty", "at least one line")),
    Damage("prompts truncated", truncate(PROMPTS), (PROMPTS, "line 5", "not valid JSON", "expected")),
    Damage("prompts in latin-1", prepend(PROMPTS, b'{"id":"\xe9","text":"a"}\n'), (PROMPTS, "0xe9", "UTF-8")),
    Damage("prompts with a BOM", prepend(PROMPTS, b"\xef\xbb\xbf"), (PROMPTS, "byte order mark", "UTF-8")),
]

_LINES = [
    _bad("line broken", 2, '{"id": "p1", "text": "a"', "not valid JSON", "expected"),
    _bad("line a list", 2, "[1, 2]", "not a JSON object", "found list", "expected"),
    _bad("line a number", 3, "7", "not a JSON object", "found int", "expected"),
    _bad("line nested deeply", 2, "[" * DEEP, "not valid JSON", "expected"),
    _bad("line with a number of 5,000 digits", 2, '{"id": ' + "9" * 5000 + "}", "not valid JSON", "expected"),
    _bad("line with a repeated key", 2, '{"id": "a", "id": "b", "text": "a"}', "'id' stands twice", "expected"),
    _bad("line without an id", 2, '{"text": "a"}', "id", "expected"),
    _bad("id empty", 2, '{"id": "", "text": "a"}', "id", "found ''", "expected"),
    _bad("id a number", 2, '{"id": 7, "text": "a"}', "id", "found 7", "expected", "string"),
    _bad("id used twice", 4, '{"id": "p0", "token_ids": [1]}', "used twice", "found p0", "line 1"),
    _bad("key unknown", 2, '{"id": "p1", "txt": "a"}', "txt", "found 'a'", "expected"),
    _bad("of two forms", 2, '{"id": "p1", "text": "a", "token_ids": [1]}', "found text and token_ids", "expected one"),
    _bad("of no form", 2, '{"id": "p1"}', "found none", "expected one of text"),
    _bad("of a null form", 2, '{"id": "p1", "text": null}', "found none", "expected one of text"),
    _bad("text empty", 2, '{"id": "p1", "text": ""}', "text", "empty", "expected"),
    _bad("text blank", 2, '{"id": "p1", "text": " \\n "}', "text", "empty", "expected"),
    _bad("messages empty", 2, '{"id": "p1", "messages": []}', "messages", "empty", "expected"),
    _bad("tokens empty", 2, '{"id": "p1", "token_ids": []}', "token_ids", "empty", "expected"),
    _bad("message without a role", 2, '{"id": "p1", "messages": [{"content": "a"}]}', "messages.0.role", "expected"),
    _bad("token a text", 2, '{"id": "p1", "token_ids": ["1"]}', "token_ids.0", "found '1'", "integer"),
    _bad("token a float", 2, '{"id": "p1", "token_ids": [1.5]}', "token_ids.0", "found 1.5", "integer"),
    _bad("token negative", 2, '{"id": "p1", "token_ids": [1, -1]}', "token_ids.1", "found -1", "equal to 0"),
    _bad("text a lone surrogate", 2, '{"id": "p1", "text": "\\ud800"}', "text", "expected"),
]

_PROMPTS = [
    Damage(
        "prompt token outside the vocabulary",
        change_prompts(lambda lines: lines[1]["token_ids"].append(VOCAB)),
        (PROMPTS, "'p1'", "found 64", "expected ids below 64", "Next:"),
    ),
    Damage(
        "prompt token of 400 digits",
        change_prompts(lambda lines: lines[1]["token_ids"].append(10**400)),
        (PROMPTS, "'p1'", "found 1000", "expected ids below 64", "Next:"),
    ),
    Damage(
        "prompt too long",
        change_prompts(lambda lines: lines[1].update(token_ids=[1] * 500)),
        (PROMPTS, "'p1'", "found 500 tokens", "at most 484", "Next: shorten"),
    ),
    Damage(
        "prompt altered",
        change_prompts(lambda lines: lines[3]["token_ids"].__setitem__(2, (lines[3]["token_ids"][2] + 1) % VOCAB)),
        (PROMPTS, "'p3'", "not the one that was recorded", "found tokens", GOLDEN, "Next: restore"),
    ),
    Damage(
        "prompt removed",
        change_prompts(lambda lines: lines.pop(2)),
        (PROMPTS, "found no 'p2'", GOLDEN, "Next: restore"),
    ),
    Damage(
        "prompt added",
        change_prompts(lambda lines: lines.append({"id": "new", "token_ids": [1]})),
        (GOLDEN, "found no 'new'", PROMPTS, "Next: record it again"),
    ),
    Damage(
        "prompts renamed",
        change_prompts(lambda lines: [line.update(id=f"q{line['id']}") for line in lines]),
        (GOLDEN, "found no 'qp0'", PROMPTS, "Next: record it again"),
    ),
]

_TEXTS = [
    Damage(
        "prompt text and no tokenizer",
        replace_line(2, '{"id": "p1", "text": "a"}'),
        ("target", "tokenizer cannot be loaded", "expected tokenizer.json"),
    ),
    Damage(
        "prompt messages and no template",
        replace_line(2, '{"id": "p1", "messages": [{"role": "user", "content": "a"}]}'),
        (PROMPTS, "'p1'", "chat template", "Next: set chat_template"),
    ),
    _text(
        "messages and a tokenizer without a template",
        _WORDS,
        "target",
        "does not have a chat template",
        "Next:",
        template=None,
    ),
    _text("messages and a broken template", _WORDS, "chat template", "'x'", "expected", template="{% for %}"),
    _text("messages and a template that raises", _WORDS, "chat template", "'x'", "x", template="{{ 1 / 0 }}"),
    _text(
        "messages and a template that gives nothing",
        _WORDS,
        PROMPTS,
        "'x'",
        "is empty after tokenization",
        template=" ",
    ),
    _text(
        "message with a lone surrogate",
        {"messages": [{"role": "user", "content": "\ud800"}]},
        "'x'",
        "expected",
        template="{{ messages[0].content }}",
    ),
    Damage(
        "prompt text and a broken tokenizer",
        all_of(
            lambda root: add_tokenizer(root, template="x"),
            write("target/tokenizer.json", b'{"version": "1.0", "model": 7}'),
            replace_line(2, '{"id": "p1", "text": "a"}'),
        ),
        ("target", "tokenizer cannot be loaded", "expected tokenizer.json"),
    ),
]

PROMPTS_FILE = [*_WHOLE, *_LINES, *_PROMPTS, *_TEXTS]
