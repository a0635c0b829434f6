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
import numpy as np
import pytest
from numpy.typing import NDArray

from harness.cli.app import main
from suites.support.damage import (
    DAMAGES,
    DRAFT_WEIGHTS,
    FILES,
    GOLDEN,
    PAIR,
    PROMPTS,
    RESULT,
    TARGET_WEIGHTS,
    add_tokenizer,
    edit_arrays,
    replace_golden_tensors,
    replace_text,
    snapshot,
)
from suites.support.random_pair import write_pair

# The examples of each sweep: 100 in a default run, 1,000 in a nightly one.
_SETTINGS = hypothesis.settings(
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
)
_SWEEPS: list[str] = []


def sweep(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test on as many examples as are to be tried of its kind of damage."""
    _SWEEPS.append(test.__name__)
    return _SETTINGS(test)


# `PAIR` and `RESULT` stand for what is damaged, `WHOLE` for a result that is not.
_CHECKS = (("check", "PAIR"), ("check", "PAIR", "--json"))
_COMMANDS = (*_CHECKS, ("measure", "PAIR", "--engine", "reference:batched"))
_GOLDEN_COMMANDS = (
    *_CHECKS,
    ("golden", "show", "PAIR"),
    ("golden", "diff", "PAIR", "PAIR", "--json"),
    ("golden", "verify", "PAIR"),
    ("power", "PAIR", "--json", "--simulations", "100", "--drop", "0.01", "--prompts", "6"),
    ("record", "PAIR"),
)
_COMPARISONS = (
    ("compare", "RESULT", "PAIR"),
    ("compare", "PAIR", "RESULT", "--json"),
    ("compare", "RESULT", "WHOLE"),
    ("compare", "WHOLE", "RESULT", "--json"),
    ("compare", "RESULT", "RESULT"),
)
_TENSORS = "the golden's tensors"
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
def whole(recorded_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a recorded pair and of what measuring it printed, to be copied and not touched."""
    folder = tmp_path_factory.mktemp("whole") / "pair"
    shutil.copytree(recorded_folder, folder)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["measure", str(folder / PAIR), "--json"]) == 0
    for name in (RESULT, "whole.json"):
        (folder / name).write_text(out.getvalue())
    return folder


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
            names = {"PAIR": root / PAIR, "RESULT": root / RESULT, "WHOLE": root / "whole.json"}
            status = main([str(names.get(part, part)) for part in command])
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


def _change(body: Any, data: st.DataObject, *, often: tuple[str, ...] = ()) -> Any:
    """Replace, remove or add one value somewhere in a value, half the time under one of the keys named `often`."""
    places = _places(body)
    # By the top level first: a list of a hundred prompts must not keep the draw from the ten keys beside it.
    tops = st.sampled_from(sorted({place[0] for place in places}, key=str))
    top = data.draw(st.sampled_from(often) | tops if often else tops, label="under")
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
@hypothesis.given(data=st.data(), name=st.sampled_from((*FILES, _TENSORS, RESULT)))
def test_bytes_flipped_cut_or_put_in(whole: Path, data: st.DataObject, name: str) -> None:
    def damage(root: Path) -> None:
        file = next(root.glob("golden/random/*.safetensors")) if name == _TENSORS else root / name
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
        # Under the name that their hash gives, so that more than the hash is looked at, as often as under the old one.
        if name == _TENSORS and data.draw(st.booleans(), label="named by their hash"):
            replace_golden_tensors(root, bytes(content))
        else:
            file.write_bytes(bytes(content))

    commands = {RESULT: _COMPARISONS, GOLDEN: _GOLDEN_COMMANDS, _TENSORS: _GOLDEN_COMMANDS}.get(name, _COMMANDS)
    _survives(whole, data.draw(st.sampled_from(commands), label="command"), damage)


@sweep
@hypothesis.given(data=st.data(), command=st.sampled_from(_COMMANDS), name=st.sampled_from(_JSON_FILES))
def test_values_of_a_json_file(whole: Path, data: st.DataObject, command: tuple[str, ...], name: str) -> None:
    def damage(root: Path) -> None:
        body = json.loads((root / name).read_text())
        (root / name).write_text(json.dumps(_change(body, data)))

    _survives(whole, command, damage)


@sweep
@hypothesis.given(data=st.data(), command=st.sampled_from(_GOLDEN_COMMANDS))
def test_values_of_the_golden(whole: Path, data: st.DataObject, command: tuple[str, ...]) -> None:
    def damage(root: Path) -> None:
        body = json.loads((root / GOLDEN).read_text())
        (root / GOLDEN).write_text(json.dumps(_change(body, data)))

    _survives(whole, command, damage)


@sweep
@hypothesis.given(data=st.data(), command=st.sampled_from(_GOLDEN_COMMANDS))
def test_arrays_of_the_golden(whole: Path, data: st.DataObject, command: tuple[str, ...]) -> None:
    def change(arrays: dict[str, Any]) -> None:
        name = data.draw(st.sampled_from(sorted(arrays)), label="array")
        array = arrays[name]
        how = data.draw(st.sampled_from(["value", "value", "dtype", "shape", "remove", "add"]), label="how")
        if how == "value":
            places = st.integers(0, array.size - 1)
            for place in data.draw(st.lists(places, min_size=1, max_size=3), label="at"):
                array.flat[place] = data.draw(_numbers_of(array.dtype), label="value")
        elif how == "dtype":
            with np.errstate(invalid="ignore"):
                arrays[name] = array.astype(data.draw(st.sampled_from(_ARRAY_DTYPES), label="dtype"))
        elif how == "shape":
            shape = data.draw(st.sampled_from(sorted(_SHAPES)), label="shape")
            arrays[name] = np.array(_SHAPES[shape](array), order="C")
        elif how == "remove":
            del arrays[name]
        else:
            arrays[data.draw(st.sampled_from(["new", "", "é", "__metadata__x"]), label="name")] = array

    _survives(whole, command, lambda root: edit_arrays(root, change))


_SHAPES: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "turned": np.transpose,
    "flat": np.ravel,
    "short": lambda array: array[:-1],
    "narrow": lambda array: array[..., :-1],
    "empty": lambda array: array[:0],
    "first": lambda array: array[0],
    "in a list": lambda array: array[None],
    "of lists": lambda array: array[..., None],
    "twice": lambda array: np.concatenate((array, array)),
}
_ARRAY_DTYPES = ("?", "i1", "i2", "i4", "i8", "u1", "u4", "u8", "f2", "f4", "f8")


def _numbers_of(dtype: np.dtype[Any]) -> st.SearchStrategy[Any]:
    """Return numbers that an array of this kind can hold."""
    if dtype.kind == "f":
        return st.sampled_from([0.0, -0.0, 1.0, -1e30, 1e30, -1e-30, math.inf, -math.inf, math.nan])
    limits = np.iinfo(dtype)
    return st.sampled_from([limits.min, -1, 0, 1, 2, 23, 24, 39, 40, 63, 64, limits.max])


@sweep
@hypothesis.given(data=st.data(), command=st.sampled_from(_COMPARISONS))
def test_values_of_a_result(whole: Path, data: st.DataObject, command: tuple[str, ...]) -> None:
    def damage(root: Path) -> None:
        body = json.loads((root / RESULT).read_text())
        # Of what `measure` prints, only these are read back.
        (root / RESULT).write_text(json.dumps(_change(body, data, often=("by_prompt", "engine", "pair"))))

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
@hypothesis.given(data=st.data(), command=st.sampled_from(_CHECKS))
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
    data=st.data(), command=st.sampled_from(_CHECKS), name=st.sampled_from((TARGET_WEIGHTS, DRAFT_WEIGHTS, _TENSORS))
)
def test_headers_of_tensors(whole: Path, data: st.DataObject, command: tuple[str, ...], name: str) -> None:
    def damage(root: Path) -> None:
        file = next(root.glob("golden/random/*.safetensors")) if name == _TENSORS else root / name
        content = file.read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length])
        tensor = header[data.draw(st.sampled_from(sorted(header.keys() - {"__metadata__"})), label="tensor")]
        how = data.draw(st.sampled_from(["dtype", "narrower dtype", "reshape", "value"]), label="how")
        if how == "dtype":
            alike = next(dtypes for dtypes in _DTYPES if tensor["dtype"] in dtypes)
            tensor["dtype"] = data.draw(st.sampled_from([*alike, "BF16"]), label="dtype")
        elif how == "narrower dtype":
            width = next(width for width, dtypes in zip((1, 4, 8), _DTYPES, strict=True) if tensor["dtype"] in dtypes)
            tensor["dtype"] = data.draw(st.sampled_from(["F8_E4M3", "U8"] if width == 1 else ["BF16", "F16", "U16"]))
            tensor["shape"][-1] *= max(1, width // 2)
        elif how == "reshape":
            tensor["shape"] = data.draw(st.sampled_from([tensor["shape"][::-1], [*tensor["shape"], 1], [0], []]))
        else:
            _change(header, data)
        encoded = json.dumps(header).encode()
        whole_file = struct.pack("<Q", len(encoded)) + encoded + content[8 + length :]
        if name == _TENSORS:
            replace_golden_tensors(root, whole_file)
        else:
            file.write_bytes(whole_file)

    _survives(whole, command, damage)


def test_a_thousand_cases_at_least_are_tried() -> None:
    assert len(DAMAGES) + len(_SWEEPS) * _SETTINGS.max_examples >= 1000
