"""Damage to the golden's tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from suites.support.damage.editing import GOLDEN, Damage, all_of, change_arrays, set_value, to_folder
from suites.support.random_pair import VOCAB


def _tensor_file(change: Callable[[Path], object]) -> Callable[[Path], object]:
    def apply(root: Path) -> None:
        change(next((root / GOLDEN).parent.glob("*.safetensors")))

    return apply


def _arrays(name: str, change: Callable[[dict[str, Any]], object], *says: str) -> Damage:
    """Return tensors that are named by their hash and do not fit."""
    return Damage(f"golden {name}", change_arrays(change), (".safetensors", "not usable", *says, "Next: restore"))


_FIRST = ("prompts", 0)

_WHOLE = [
    Damage("golden tensors missing", _tensor_file(lambda file: file.unlink()), (".safetensors", "Next: restore")),
    Damage(
        "golden tensors are a folder",
        _tensor_file(to_folder),
        (".safetensors", "cannot be read", "Next: restore"),
    ),
    Damage(
        "golden tensors empty", _tensor_file(lambda file: file.write_bytes(b"")), (".safetensors", "SHA-256 e3b0c4")
    ),
    Damage(
        "golden tensors truncated",
        _tensor_file(lambda file: file.write_bytes(file.read_bytes()[:-9])),
        (".safetensors", "not the ones that were recorded", "found SHA-256", "expected", "Next: restore"),
    ),
]

_ARRAYS = [
    Damage(
        "golden with a shorter output",
        set_value(GOLDEN, *_FIRST, "output", to=27),
        (".safetensors", "texts", "Next: restore"),
    ),
    Damage(
        "golden with outputs shifted",
        all_of(set_value(GOLDEN, "prompts", 0, "output", to=20), set_value(GOLDEN, "prompts", 1, "output", to=36)),
        (".safetensors", "Next: restore"),
    ),
    _arrays("tensors without starts", lambda body: body.pop("starts"), "starts"),
    _arrays("tensors with a lone start", lambda body: body.update(starts=np.array(23, np.int32)), "starts"),
    _arrays("tensors with a start too many", lambda body: body.update(starts=np.ones(7, np.int32)), "starts"),
    _arrays("tensors with starts in halves", lambda body: body.update(starts=body["starts"] + 0.5), "starts"),
    _arrays("tensors with negative starts", lambda body: body.update(starts=-body["starts"]), "starts"),
    _arrays("tensors with few proposals", lambda body: body.update(proposals=body["proposals"][:-1]), "proposals"),
    _arrays(
        "tensors with narrow proposals",
        lambda body: body.update(proposals=np.ascontiguousarray(body["proposals"][:, :3])),
        "proposals",
    ),
    _arrays("tensors with flat logprobs", lambda body: body.update(logprobs=body["logprobs"][:, 0].copy()), "logprobs"),
    _arrays("tensors with a text of floats", lambda body: body.update(texts=body["texts"] + 0.5), "texts"),
    _arrays("tensors with a token too high", lambda body: body["texts"].__setitem__(3, VOCAB), "texts", "64"),
    _arrays("tensors with a token below 0", lambda body: body["texts"].__setitem__(3, -1), "texts", "-1"),
    _arrays("tensors with a short text", lambda body: body.update(texts=body["texts"][:-1]), "texts"),
    _arrays("tensors with infinite sketches", lambda body: body["sketches"].fill(-math.inf), "sketches"),
    _arrays(
        "tensors with narrow sketches",
        lambda body: body.update(sketches=np.ascontiguousarray(body["sketches"][..., :3])),
        "sketches",
    ),
    _arrays("tensors with flat sketches", lambda body: body.update(sketches=body["sketches"].ravel()), "sketches"),
    _arrays("tensors with sketches of integers", lambda body: body.update(sketches=body["starts"]), "sketches"),
    Damage(
        "golden tensors with a stage too few",
        change_arrays(lambda body: body.update(sketches=np.ascontiguousarray(body["sketches"][:, :, 1:]))),
        (GOLDEN, "wiring.boundaries", "found 12 stages", "expected 13", "Next: restore"),
    ),
    Damage(
        "golden wiring of fewer boundaries",
        set_value(GOLDEN, "wiring", "boundaries", to=[0, 2]),
        (GOLDEN, "wiring.boundaries", "found 13 stages", "expected 12", "Next: restore"),
    ),
    _arrays("tensors with inf", lambda body: body["logprobs"].__setitem__((0, 0), math.inf), "logprobs"),
]

GOLDEN_TENSORS = [*_WHOLE, *_ARRAYS]
