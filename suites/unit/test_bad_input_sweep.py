"""A sweep of random damage to every file a user hands over: told or measured, never a traceback, nothing written."""

from __future__ import annotations

import contextlib
import io
import json
import math
import shutil
import struct
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import hypothesis
import hypothesis.strategies as st
import pytest

from harness.cli.app import main
from suites.random_pair import write_pair
from suites.unit.damage import (
    DRAFT_WEIGHTS,
    FILES,
    GOLDEN,
    PAIR,
    PROMPTS,
    TARGET_WEIGHTS,
    add_tokenizer,
    replace_text,
    snapshot,
)

# For each of seven tests: 350 examples in a default run, 3,500 in a nightly one.
_EXAMPLES = hypothesis.settings().max_examples // 2
sweep = hypothesis.settings(
    max_examples=_EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
)

_COMMANDS = (("check",), ("check", "--json"), ("measure", "--engine", "reference:batched"))
_JSON_FILES = tuple(name for name in FILES if name.endswith(".json") and name != GOLDEN)

_TEXTS = st.sampled_from(
    ["", "none", "a/b", "../x", "~nobody", "\0", "\ud800", "é" * 300, "[/b]", "1", "yarn", "float16"]
) | st.text(max_size=8)
_NUMBERS = st.one_of(
    # No sizes between the last small and the first great one: a model of that many units would be built, and slowly.
    st.sampled_from([-(2**63), -2, -1, 0, 1, 2, 3, 5, 7, 12, 24, 40, 48, 2**31 - 1, 2**31, 2**63, 10**30, 10**400]),
    st.sampled_from([-1.5, -0.0, 0.5, 1.0, 3.0, 1e-300, 1e308, math.inf, -math.inf, math.nan]),
)
_VALUES = st.recursive(
    st.sampled_from([None, True, False]) | _NUMBERS | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def _instead_of(value: Any) -> st.SearchStrategy[Any]:
    """Return what may stand in a value's place: a bad one of its own kind as often as one of any kind."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _NUMBERS | _VALUES
    return _TEXTS | _VALUES if isinstance(value, str) else _VALUES


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def whole(_recorded_folder: Path) -> Path:
    """The folder of a recorded pair, to be copied and not touched."""
    return _recorded_folder


@pytest.fixture(scope="session")
def whole_in_words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `whole`, with prompts that go through a tokenizer and a chat template."""
    folder = tmp_path_factory.mktemp("in-words")
    file = write_pair(folder)
    add_tokenizer(folder, template="{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}")
    replace_text(file, 'chat_template = "none"\n', "")
    lines = [
        {"id": "text", "text": "w1 w2 w3"},
        {"id": "chat", "messages": [{"role": "system", "content": "w4"}, {"role": "user", "content": "w5 w6"}]},
        {"id": "ids", "token_ids": [7, 8, 9]},
    ]
    (folder / PROMPTS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["record", str(file)]) == 0
    return folder


def _survives(recorded: Path, command: tuple[str, ...], damage: Callable[[Path], object]) -> None:
    """Damage a fresh copy of a recorded pair and run a command on it."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "pair"
        shutil.copytree(recorded, root)
        damage(root)
        before = snapshot(root)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main([command[0], str(root / PAIR), *command[1:]])
        assert snapshot(root) == before
        text = err.getvalue()
        hypothesis.event(f"exit {status}")
        hypothesis.note(f"exit {status}: {text}")
        assert status in (0, 1, 2, 3)
        assert "Traceback" not in out.getvalue() + text
        if status == 2:
            assert text.startswith("error: ")
            assert text.count("\n") == 1
            assert text.rstrip("\n").isprintable()
        else:
            assert text == ""
        if "--json" in command:
            assert ("error" in json.loads(out.getvalue())) == (status == 2)


def _places(value: Any, here: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the path of every value within a value."""
    items: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [place for key, inner in items for place in ((*here, key), *_places(inner, (*here, key)))]


def _change(body: Any, data: st.DataObject) -> Any:
    """Replace, remove or add one value somewhere in a value."""
    places = _places(body)
    # By the top level first: a list of a hundred prompts must not keep the draw from the ten keys beside it.
    top = data.draw(st.sampled_from(sorted({place[0] for place in places}, key=str)), label="under")
    place = data.draw(st.sampled_from([place for place in places if place[0] == top]), label="place")
    *path, last = place
    holder = body
    for key in path:
        holder = holder[key]
    how = data.draw(st.sampled_from(["replace", "replace", "replace", "remove", "add"]), label="how")
    if how == "remove":
        del holder[last]
        return body
    value = data.draw(_instead_of(holder[last]), label="value")
    if how == "replace":
        holder[last] = value
    elif isinstance(holder, dict):
        holder[data.draw(st.sampled_from(["new", "é", "", "a\nb", "layer_types", "quantization_config"]))] = value
    else:
        holder.append(value)
    return body


@sweep
@hypothesis.given(data=st.data(), command=st.sampled_from(_COMMANDS), name=st.sampled_from((*FILES, "tensors")))
def test_bytes_flipped_cut_or_put_in(whole: Path, data: st.DataObject, command: tuple[str, ...], name: str) -> None:
    def damage(root: Path) -> None:
        file = next(root.glob("golden/random/*.safetensors")) if name == "tensors" else root / name
        content = bytearray(file.read_bytes())
        how = data.draw(st.sampled_from(["flip", "cut", "insert", "erase"]), label="how")
        at = data.draw(st.integers(0, len(content) - 1), label="at")
        if how == "flip":
            for place in {at, *data.draw(st.lists(st.integers(0, len(content) - 1), max_size=3), label="also at")}:
                content[place] ^= data.draw(st.integers(1, 255), label="mask")
        elif how == "cut":
            del content[at:]
        elif how == "insert":
            content[at:at] = data.draw(st.binary(min_size=1, max_size=9), label="bytes")
        else:
            del content[at : at + data.draw(st.integers(1, 200), label="length")]
        file.write_bytes(bytes(content))

    _survives(whole, command, damage)


@sweep
@hypothesis.given(data=st.data(), command=st.sampled_from(_COMMANDS), name=st.sampled_from(_JSON_FILES))
def test_values_of_a_json_file(whole: Path, data: st.DataObject, command: tuple[str, ...], name: str) -> None:
    def damage(root: Path) -> None:
        body = json.loads((root / name).read_text())
        (root / name).write_text(json.dumps(_change(body, data)))

    _survives(whole, command, damage)


@sweep
@hypothesis.given(data=st.data(), command=st.sampled_from(_COMMANDS[:2]))
def test_values_of_the_golden(whole: Path, data: st.DataObject, command: tuple[str, ...]) -> None:
    def damage(root: Path) -> None:
        body = json.loads((root / GOLDEN).read_text())
        (root / GOLDEN).write_text(json.dumps(_change(body, data)))

    _survives(whole, command, damage)


@sweep
@hypothesis.given(data=st.data(), command=st.sampled_from(_COMMANDS))
def test_values_of_the_prompts(whole: Path, data: st.DataObject, command: tuple[str, ...]) -> None:
    def damage(root: Path) -> None:
        lines = _change([json.loads(line) for line in (root / PROMPTS).read_text().splitlines()], data)
        (root / PROMPTS).write_text("".join(json.dumps(line) + "\n" for line in lines))

    _survives(whole, command, damage)


@sweep
@hypothesis.given(
    data=st.data(),
    command=st.sampled_from(_COMMANDS),
    name=st.sampled_from(("target/tokenizer.json", "target/tokenizer_config.json", PROMPTS)),
)
def test_values_of_the_tokenizer_and_of_what_it_reads(
    whole_in_words: Path, data: st.DataObject, command: tuple[str, ...], name: str
) -> None:
    def damage(root: Path) -> None:
        text = (root / name).read_text()
        if name == PROMPTS:
            lines = _change([json.loads(line) for line in text.splitlines()], data)
            (root / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
        else:
            (root / name).write_text(json.dumps(_change(json.loads(text), data)))

    _survives(whole_in_words, command, damage)


@sweep
@hypothesis.given(data=st.data(), command=st.sampled_from(_COMMANDS[:2]))
def test_values_of_the_pair_file(whole: Path, data: st.DataObject, command: tuple[str, ...]) -> None:
    def damage(root: Path) -> None:
        body = tomllib.loads((root / PAIR).read_text())
        body["engine"] = {"name": "reference", "dtype": "float32", "device": "cpu", "endpoint": "", "args": {}}
        body["gate"] |= {"margin": 0.01, "alpha": 0.001, "strict": False}
        (root / PAIR).write_bytes(_toml(_change(body, data)).encode("utf-8", "surrogatepass"))

    _survives(whole, command, damage)


def _toml(body: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(key)} = {_toml_value(value)}\n" for key, value in body.items())


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    if isinstance(value, float):
        return str(value)
    # TOML has no null; the word is a syntax error there.
    return json.dumps(value, ensure_ascii=isinstance(value, int))


# By size, so that the file stays whole and the tensor becomes another.
_DTYPES = (("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), ("F32", "I32", "U32"), ("I64", "U64", "F64", "C64"))


@sweep
@hypothesis.given(
    data=st.data(), command=st.sampled_from(_COMMANDS), name=st.sampled_from((TARGET_WEIGHTS, DRAFT_WEIGHTS))
)
def test_headers_of_weights(whole: Path, data: st.DataObject, command: tuple[str, ...], name: str) -> None:
    def damage(root: Path) -> None:
        content = (root / name).read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length])
        tensor = header[data.draw(st.sampled_from(sorted(header.keys() - {"__metadata__"})), label="tensor")]
        how = data.draw(st.sampled_from(["dtype", "reshape", "value"]), label="how")
        if how == "dtype":
            alike = next(dtypes for dtypes in _DTYPES if tensor["dtype"] in dtypes)
            tensor["dtype"] = data.draw(st.sampled_from([*alike, "BF16"]), label="dtype")
        elif how == "reshape":
            tensor["shape"] = data.draw(st.sampled_from([tensor["shape"][::-1], [*tensor["shape"], 1], [0], []]))
        else:
            _change(header, data)
        encoded = json.dumps(header).encode()
        (root / name).write_bytes(struct.pack("<Q", len(encoded)) + encoded + content[8 + length :])

    _survives(whole, command, damage)
