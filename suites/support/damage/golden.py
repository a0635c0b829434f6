"""Damage to the golden's JSON, and goldens of something else."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from suites.support.damage.editing import (
    GOLDEN,
    PAIR,
    STEEP,
    Damage,
    all_of,
    broken_json,
    change_json,
    drop_value,
    into_file,
    into_folder,
    pair_text,
    remove,
    set_value,
)
from suites.support.random_pair import write_target


def _bad(name: str, apply: Callable[[Path], object], *says: str) -> Damage:
    return Damage(f"golden {name}", apply, (GOLDEN, *says))


def _edit(name: str, *keys: str | int, to: Any, says: tuple[str, ...]) -> Damage:
    """Return a golden of which one value is another."""
    return _bad(name, set_value(GOLDEN, *keys, to=to), *says, "Next:")


def _totals(key: str, value: Any) -> Damage:
    says = (f"totals.{key} is {value}", "the prompts' counts give")
    return _edit(f"totals.{key} changed", "totals", key, to=value, says=says)


def _another_target(**changes: Any) -> Callable[[Path], object]:
    def apply(root: Path) -> None:
        shutil.rmtree(root / "target")
        write_target(root / "target", **changes)

    return apply


_FIRST = ("prompts", 0)
_NONE = f"{PAIR}: golden: the pair has no golden"

_WHOLE = [
    Damage("golden missing", remove(GOLDEN), ("golden/random", "has no golden", "Next: harness record")),
    Damage("golden folder missing", lambda root: shutil.rmtree(root / "golden"), (_NONE, "Next: harness record")),
    Damage("golden folder is a file", into_file("golden"), (_NONE, "Next: harness record")),
    Damage("golden is a folder", into_folder(GOLDEN), (GOLDEN, "cannot be read", "expected a text file", "Next:")),
]

_OF_SOMETHING_ELSE = [
    Damage(
        "golden of another pair",
        all_of(pair_text('"random"', '"other"'), lambda root: (root / "golden/random").rename(root / "golden/other")),
        ("golden/other", "pair", "found random", "expected other", "Next:"),
    ),
    _edit("of another vocabulary", "target", "vocab_size", to=128, says=("target.vocab_size", "found 128", "64")),
    _edit("of another hidden size", "target", "hidden_size", to=64, says=("target.hidden_size", "found 64", "32")),
    _edit("of other layers", "target", "num_layers", to=8, says=("target.num_layers", "found 8", "expected 4")),
    _edit(
        "of another architecture",
        "target",
        "architecture",
        to="Qwen2ForCausalLM",
        says=("target.architecture", "found Qwen2ForCausalLM", "expected LlamaForCausalLM"),
    ),
    _bad("of a shallower target", _another_target(layers=5), "target.num_layers", "found 4", "expected 5", "Next:"),
    _bad(
        "with other steps",
        pair_text("num_steps = 4", "num_steps = 3"),
        "decode.num_steps",
        "found 4",
        "expected 3",
        PAIR,
        "Next:",
    ),
    _bad("with other lengths", pair_text("= 24", "= 25"), "decode.max_new_tokens", "found 24", "expected 25", "Next:"),
    _edit(
        "of another dtype than its name",
        "dtype",
        to="bfloat16",
        says=("dtype", "found reference-cpu-bfloat16", "expected"),
    ),
]

_KEYS = [
    _edit("of a future schema", "schema_version", to=3, says=("schema_version", "found 3", "expected 1 or 2")),
    _edit("of a schema in words", "schema_version", to="1", says=("schema_version", "found '1'", "expected 1 or 2")),
    _bad("of no schema", drop_value(GOLDEN, "schema_version"), "schema_version", "found None", "expected 1 or 2"),
    _edit("with an unknown key", "flor", to=1, says=("flor: unknown key", "found 1", "expected one of", "floor")),
    _bad("with a key missing", drop_value(GOLDEN, "totals"), "totals: the key is missing", "Next:"),
    _edit("with a count in words", *_FIRST, "tokens", to="3", says=("prompts.0.tokens", "integer")),
    _edit("with a negative count", *_FIRST, "histogram", 0, to=-1, says=("prompts.0.histogram.0",)),
    _edit("with a count of 400 digits", *_FIRST, "histogram", 0, to=10**400, says=("prompts.0.histogram.0",)),
    _edit("with floor 2", "floor", to=2.0, says=("floor",)),
    _edit("with floor NaN", "floor", to=math.nan, says=("floor",)),
    _edit("with rate NaN", "totals", "rate", to=math.nan, says=("totals.rate",)),
    _edit("without noise", "noise", to={}, says=("noise.float32", "found noise floors of no dtype")),
    _edit("with noise NaN", "noise", "float32", "likelihood", to=math.nan, says=("noise.float32.likelihood",)),
    _edit("with more noise than windows", "noise", "float32", "changed", to=10**6, says=("noise.float32", "1000000")),
    _edit("with a floor above its rate", "floor", to=0.5, says=("floor 0.5", "rate")),
    _bad("without prompts", set_value(GOLDEN, "prompts", to=[]), "Next:"),
    _edit("with unknown settings", "decode", "beam", to=2, says=("decode",)),
    _edit("with a setting of 400 digits", "decode", "temperature", to=10**400, says=("decode",)),
    _edit("with impossible settings", "decode", "num_steps", to=0, says=("decode",)),
    _bad("without a setting", drop_value(GOLDEN, "decode", "topk"), "decode", "Next:"),
    _edit("naming no tensors", "tensors", to="../../draft/model.safetensors", says=("tensors",)),
    _edit("nested steeply", "versions", to=json.loads("[" * STEEP + "]" * STEEP), says=("Next:",)),
]

_COUNTS = [
    _totals("prompts", 7),
    _totals("rounds", 106),
    _totals("accepted", 37),
    _totals("proposed", 421),
    _totals("rate", 0.5),
    _totals("length", 2.5),
    _edit("with a histogram entry changed", *_FIRST, "histogram", 0, to=17, says=("totals.rounds is 105", "106")),
    _edit(
        "with two histogram entries swapped",
        *_FIRST,
        "histogram",
        to=[16, 0, 1, 0, 1],
        says=("totals.accepted is 36", "37"),
    ),
    _edit("with a short histogram", *_FIRST, "histogram", to=[16, 1], says=("'p0'", "4 entries in hits", "not 1")),
    _bad(
        "with counts of fewer steps",
        all_of(
            set_value(GOLDEN, *_FIRST, "histogram", to=[16, 1]),
            set_value(GOLDEN, *_FIRST, "hits", to=[2]),
            set_value(GOLDEN, *_FIRST, "positions", to=[23]),
        ),
        "'p0' has 2 entries in histogram, not 5",
        "Next:",
    ),
    _edit("with short hits", *_FIRST, "hits", to=[2], says=("'p0'", "1 entries in hits", "4")),
    _edit("with more hits than positions", *_FIRST, "hits", 0, to=24, says=("'p0'", "hits", "24", "23")),
    _edit("with an impossible last round", *_FIRST, "eos_round", to=[4, 5], says=("'p0'", "eos_round", "5")),
    _bad(
        "with a prompt twice",
        change_json(GOLDEN, lambda body: body["prompts"].append(body["prompts"][0])),
        "'p0' occurs twice",
        "Next:",
    ),
]

GOLDEN_JSON = [
    *_WHOLE,
    *broken_json(GOLDEN, "golden", "Next: restore it from version control")[2:],
    *_OF_SOMETHING_ELSE,
    *_KEYS,
    *_COUNTS,
]
