"""A draft's rotary position embedding: which of its config's rope keys count, and the frequencies that follow.

The keys come from several generations of transformers and from engines that know more of them. A key that is read past
turns a draft's heads by other angles than it was trained with, and nothing crashes; so a key is read, or it is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from harness.errors import InputError, one_line, quote
from harness.models.precision import norm_dtype
from harness.pair.draft_spec import DraftSpec
from harness.pair.quiet import quiet

__all__ = ["Rotary", "rotate"]


class Rotary(nn.Module):
    """Rotary position embedding by the draft's own rope keys.

    Its frequencies are float32 whatever the draft's dtype is, as in transformers and in the engines: rounded to
    bfloat16, they are off by a quarter of a turn after a few hundred positions.

    Raises:
        InputError: A rope key is not known, contradicts another one, or asks for what a draft's layer cannot do here.
    """

    inv_freq: Tensor

    def __init__(self, spec: DraftSpec) -> None:
        super().__init__()
        inv_freq, self.scaling = _frequencies(spec)
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the frequencies with the module; they are never cast."""
        exact = self.inv_freq
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.inv_freq = exact.to(self.inv_freq.device)
        return self

    def table(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return cos and sin, each [..., head_dim], for integer `positions` of any shape."""
        angles = positions.to(norm_dtype(dtype))[..., None] * self.inv_freq.to(norm_dtype(dtype))
        angles = torch.cat((angles, angles), dim=-1)
        return (angles.cos() * self.scaling).to(dtype), (angles.sin() * self.scaling).to(dtype)


def rotate(x: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
    """Apply a table [B, T, d] to heads `x` [B, T, heads, d]."""
    cos, sin = (part.unsqueeze(-2) for part in table)
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


# By rope type, the keys that it reads beside `rope_theta`. Those of several axes, of images, say the same as the plain
# type for text, which is all that a draft sees; `finetuned` is a remark that no code reads.
_READ: dict[str, frozenset[str]] = {
    "default": frozenset({"mrope_section", "mrope_interleaved", "original_max_position_embeddings"}),
    "linear": frozenset({"factor", "original_max_position_embeddings"}),
    "llama3": frozenset({"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}),
    "yarn": frozenset(
        {
            "factor",
            "original_max_position_embeddings",
            "attention_factor",
            "beta_fast",
            "beta_slow",
            "mscale",
            "mscale_all_dim",
            "truncate",
            "finetuned",
        }
    ),
}
# Keys that an engine acts on and this module does not, with the value at which they change nothing.
_PLAIN: dict[str, Any] = {
    "partial_rotary_factor": 1,
    "attn_factor": 1,
    "extrapolation_factor": 1,
    "rope_is_neox_style": True,
}
_ORIGINAL = "original_max_position_embeddings"


def _frequencies(spec: DraftSpec) -> tuple[Tensor, float]:
    """Return the frequencies, float32 [head_dim / 2], and what cos and sin are multiplied by."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    parameters = _parameters(spec)
    try:
        # On the CPU, whatever device the draft is built on: the values are looked at here.
        with quiet(), torch.device("cpu"):
            config = LlamaConfig(
                # Only the width of a head counts here, and transformers wants it to divide the model's.
                hidden_size=spec.num_heads * spec.head_dim,
                num_attention_heads=spec.num_heads,
                head_dim=spec.head_dim,
                max_position_embeddings=spec.max_positions,
                rope_parameters=parameters,
            )
            rotary = LlamaRotaryEmbedding(config)
        inv_freq, scaling = cast(Tensor, rotary.inv_freq).float(), float(rotary.attention_scaling)
        problem = None if bool(torch.isfinite(inv_freq).all()) and math.isfinite(scaling) else "frequencies not finite"
    except Exception as error:  # noqa: BLE001 - the keys reach arithmetic in transformers, which may fail in any way
        problem = f"{type(error).__name__}: {error}"
    if problem is not None:
        raise InputError(
            f"the rope keys are not usable: {one_line(problem, 240)}",
            file=spec.config_file,
            key="rope_theta / rope_scaling / rope_parameters",
            found=quote(dict(spec.rope)),
            expected="keys that transformers reads for a LlamaConfig",
        )
    # From the base frequencies on, everything is computed here, in the draft's own precision.
    return inv_freq, scaling


def _parameters(spec: DraftSpec) -> dict[str, Any]:
    """Return the rope keys as one object, each of them with a single value, and `rope_type` among them."""
    top = {key: value for key, value in spec.rope.items() if key not in _SECTIONS}
    name, section = _section(spec)
    kinds = {key: section.pop(key) for key in ("rope_type", "type") if key in section}
    if len(set(map(repr, kinds.values()))) > 1:
        raise _error(spec, f"{name}.rope_type and {name}.type", kinds, "one type")
    kind = next(iter(kinds.values()), "default" if set(section) <= {"rope_theta"} else None)
    if "mrope_section" in section and kind == "mrope":
        kind = "default"
    if not isinstance(kind, str) or kind not in _READ:
        found = f"no type next to {', '.join(sorted(section))}" if kind is None else kind
        raise _error(
            spec, f"{name}.rope_type", found, " or ".join(_READ), problem="this rope type is not supported for a draft"
        )
    for key, plain in _PLAIN.items():
        for place, values in ((f"{name}.{key}", section), (key, top)):
            value = values.pop(key, plain)
            if value != plain:
                raise _error(
                    spec, place, value, f"{plain}, or no such key", problem="a draft that is rotated so cannot be run"
                )
    for key in ("rope_theta", _ORIGINAL):
        if key in top and key in section and top[key] != section[key]:
            raise _error(spec, f"{key} and {name}.{key}", f"{top[key]} and {section[key]}", "one value")
    section = {**({key: top[key] for key in top if key != _ORIGINAL or kind != "default"}), **section}
    unknown = sorted(set(section) - _READ[kind] - {"rope_theta", _ORIGINAL})
    if unknown:
        known = ", ".join(sorted(_READ[kind] | {"rope_theta"}))
        raise _error(spec, f"{name}.{unknown[0]}", section[unknown[0]], f"one of {known} for type {kind}")
    if ("mscale" in section) != ("mscale_all_dim" in section):
        # transformers reads neither of them then, and the engines read the one that is there.
        one = "mscale" if "mscale" in section else "mscale_all_dim"
        raise _error(spec, f"{name}.{one}", section[one], "both mscale and mscale_all_dim, or neither")
    return {"rope_theta": 10000.0, **section, "rope_type": kind}


_SECTIONS = ("rope_parameters", "rope_scaling")


def _section(spec: DraftSpec) -> tuple[str, dict[str, Any]]:
    """Return the name and a copy of the object with the rope keys, which has one name or two that agree."""
    found: dict[str, dict[str, Any]] = {}
    for name in _SECTIONS:
        value = spec.rope.get(name)
        if value is None:
            continue
        if not isinstance(value, Mapping):
            raise _error(spec, name, quote(value), "an object")
        found[name] = {key: part for key, part in value.items() if part is not None}
    if not found:
        return _SECTIONS[1], {}
    contents = [_plain(section) for section in found.values()]
    if any(one != contents[0] for one in contents):
        raise _error(spec, " and ".join(found), quote(found), "one of them, or two that agree")
    name = next(iter(found))
    return name, {**dict(*list(found.values())[1:]), **found[name]}


def _plain(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section's keys under one name each, without the base frequency, which may be outside of it."""
    kind = section.get("rope_type", section.get("type", "default"))
    others = {key: value for key, value in section.items() if key not in ("rope_type", "type", "rope_theta")}
    return {**others, "rope_type": kind}


def _error(
    spec: DraftSpec, key: str, found: object, expected: str, *, problem: str = "the rope keys are not usable"
) -> InputError:
    return InputError(problem, file=spec.config_file, key=key, found=str(found), expected=expected)
