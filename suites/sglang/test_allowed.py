"""Every argument of the installed SGLang: set by a number, a switch or a word of a list, or not by a pair file."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from harness.engines.sglang.allowed import ALLOWED, require_allowed
from harness.engines.sglang.installed import engine_environment
from harness.errors import InputError

# Each argument's type, with the choices that it is documented by.
_FIELDS = """
import json, sys, types, typing
from sglang.srt.server_args import ServerArgs

def plain(kind):
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return plain(typing.get_args(kind)[0])
    if origin is typing.Literal:
        return ["words"]
    if origin in (typing.Union, types.UnionType):
        return sorted({name for part in typing.get_args(kind) for name in plain(part)})
    if origin is list and typing.get_args(kind) == (int,):
        return ["integers"]
    return [getattr(kind, "__name__", str(kind)) if origin is None else str(kind)]

fields = {}
for name, kind in typing.get_type_hints(ServerArgs, include_extras=True).items():
    metadata = getattr(kind, "__metadata__", ())
    choices = any(getattr(part, "choices", None) for part in metadata)
    fields[name] = [plain(kind), bool(choices)]
sys.stdout.write("FIELDS" + json.dumps(fields))
"""
_PLAIN = {"int", "float", "bool", "NoneType", "words", "integers"}
# Words that SGLang looks up in a table of its own, without saying which words these are.
_LOOKED_UP = {"sampling_backend", "eplb_algorithm", "log_level", "speculative_draft_attention_backend"}
# What earlier releases have, which pair files may name by `served_by`.
_EARLIER = {"cuda_graph_bs", "cuda_graph_max_bs"}
_TELLING = re.compile(
    r"path|url|addr|host(?!_mem)|port(?!ion)|dir$|dir_|file(?!_)|folder|endpoint|config|remote|hook|loader_extra|"
    r"storage|trust|socket|secret|key|template|override|revision|load_format|lora|node"
)
_NOT_TELLING = {"numa_node", "mamba_max_states_per_path"}


@cache
def _fields() -> dict[str, tuple[list[str], bool]]:
    result = subprocess.run(
        [sys.executable, "-c", _FIELDS],
        env=engine_environment("cpu", ""),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    found: dict[str, tuple[list[str], bool]] = json.loads(result.stdout.partition("FIELDS")[2])
    assert len(found) > 300
    return found


def test_what_may_be_set_takes_no_free_text() -> None:
    free: dict[str, Any] = {}
    for name in ALLOWED & _fields().keys():
        kinds, chosen = _fields()[name]
        plain = _PLAIN | ({"str"} if chosen or name in _LOOKED_UP else set())
        if set(kinds) - plain:
            free[name] = kinds
    assert free == {}


def test_what_may_be_set_exists_and_is_not_called_like_a_file_or_an_address() -> None:
    assert ALLOWED - _fields().keys() == _EARLIER
    assert {name for name in ALLOWED if _TELLING.search(name)} == _NOT_TELLING
    assert _LOOKED_UP <= ALLOWED


def test_everything_else_is_refused() -> None:
    others = _fields().keys() - ALLOWED
    assert {"trust_remote_code", "load_format", "dist_init_addr", "forward_hooks", "download_dir"} <= others
    for name in others:
        with pytest.raises(InputError, match="a pair file cannot set this argument"):
            require_allowed({name: 1}, Path("a.pair.toml"))
