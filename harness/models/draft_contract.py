"""Which tensors a draft's checkpoint must hold, by its config: names and shapes, without weights and without memory.

Kimi-K2.5's `fc` is 3 * 7168 = 21,504 wide, and its weights are not needed to say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from harness.errors import InputError
from harness.facts.flags import FLAGS
from harness.models.checkpoint import read_headers, weight_files
from harness.models.draft import Eagle3Draft, RMSNorm
from harness.pair.draft_spec import DraftSpec, Mla

__all__ = ["by_canonical_name", "check_headers", "expected_tensors", "require_tensors"]

# Buffers that some writers save and every reader recomputes.
_COMPUTED = ("midlayer.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq")
# The names that EAGLE-3.1 drafts had before fc_norm was numbered.
_LEGACY = {"aux_norm_low.": "fc_norm.0.", "aux_norm_mid.": "fc_norm.1.", "aux_norm_high.": "fc_norm.2."}
_Value = TypeVar("_Value")


def _canonical(name: str) -> str:
    """Return the name used here: `midlayer.` for `layers.0.`, no leading `model.`, `fc_norm.0.` for `aux_norm_low.`."""
    name = name.removeprefix("model.")
    for old, new in {"layers.0.": "midlayer.", **_LEGACY}.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name


def by_canonical_name(written: Mapping[str, _Value], spec: DraftSpec, file: Path) -> dict[str, _Value]:
    """Return a checkpoint's tensors, or what is known of them, by the names used here.

    Buffers that every reader recomputes are left out, and tensors of flags that the serving engine does not read.

    Args:
        written: A value for each tensor, keyed by the names in the checkpoint.
        spec: The draft.
        file: Its weights, for messages.

    Raises:
        InputError: Two names mean one tensor.
    """
    unused = (*_COMPUTED, *(FLAGS[flag].tensors for flag in spec.unread))
    found: dict[str, _Value] = {}
    names: dict[str, str] = {}
    for name, value in written.items():
        canonical = _canonical(name)
        if canonical.startswith(unused):
            continue
        if canonical in found:
            raise InputError(
                "the draft's weights contain a tensor twice",
                file=file,
                key=canonical,
                found=f"{names[canonical]} and {name}",
                expected="one of them",
                next_step="export the draft again; it is chance which of them an engine takes",
            )
        found[canonical], names[canonical] = value, name
    return found


def expected_tensors(spec: DraftSpec, num_boundaries: int) -> dict[str, Tensor]:
    """Return the tensors that a draft has, by name, on the meta device: a slip in a config can ask for terabytes.

    Args:
        spec: The draft.
        num_boundaries: How many boundaries are concatenated for its `fc`.

    Raises:
        InputError: No draft of these sizes can be built.
    """
    try:
        with torch.device("meta"):
            # Rope does not have tensors: its keys do not matter here.
            draft = Eagle3Draft(replace(spec, rope={}), num_boundaries)
            if spec.mla is not None:
                draft.midlayer.self_attn = _latent_attention(spec, spec.mla)
            return draft.state_dict()
    except (RuntimeError, OverflowError, TypeError) as error:
        raise InputError(
            "a draft of these sizes cannot be built",
            file=spec.config_file,
            key="intermediate_size, num_attention_heads, head_dim",
            found=f"{spec.intermediate_size}, {spec.num_heads}, {spec.head_dim}",
            expected="the sizes of the draft's tensors",
            next_step=str(error).split("\n")[0],
        ) from None


def _latent_attention(spec: DraftSpec, mla: Mla) -> nn.ModuleDict:
    """Return the tensors of DeepSeek's attention, whose two projections down read 2H: embedding and state."""
    double, heads = 2 * spec.hidden_size, spec.num_heads
    return nn.ModuleDict(
        {
            "q_a_proj": nn.Linear(double, mla.q_lora_rank, bias=False),
            "q_a_layernorm": RMSNorm(mla.q_lora_rank, spec.rms_norm_eps),
            "q_b_proj": nn.Linear(mla.q_lora_rank, heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim), bias=False),
            "kv_a_proj_with_mqa": nn.Linear(double, mla.kv_lora_rank + mla.qk_rope_head_dim, bias=False),
            "kv_a_layernorm": RMSNorm(mla.kv_lora_rank, spec.rms_norm_eps),
            "kv_b_proj": nn.Linear(mla.kv_lora_rank, heads * (mla.qk_nope_head_dim + mla.v_head_dim), bias=False),
            "o_proj": nn.Linear(heads * mla.v_head_dim, spec.hidden_size, bias=False),
        }
    )


def _optional(spec: DraftSpec) -> set[str]:
    """Return the tensors that a checkpoint may leave out: an engine has them from the target, or needs none."""
    names = {"embed_tokens.weight"}
    if spec.tie_word_embeddings or spec.draft_vocab_size == spec.vocab_size:
        names.add("lm_head.weight")
    if spec.draft_vocab_size == spec.vocab_size:
        names |= {"d2t", "t2d"}
    return names


def check_headers(spec: DraftSpec, num_boundaries: int) -> dict[str, tuple[int, ...]]:
    """Check a checkpoint's names and shapes against its config, without reading a weight.

    Args:
        spec: The draft.
        num_boundaries: How many boundaries are concatenated for its `fc`.

    Returns:
        The shapes by canonical name.

    Raises:
        InputError: The weights are missing or unreadable, or a tensor is missing, unknown or misshapen.
    """
    file = weight_files(spec.path)[0]
    found = by_canonical_name({name: head.shape for name, head in read_headers(spec.path).items()}, spec, file)
    expected = expected_tensors(spec, num_boundaries)
    needed = {name: tensor for name, tensor in expected.items() if name in found or name not in _optional(spec)}
    require_tensors(found, needed, spec, file)
    return found


def require_tensors(
    found: Mapping[str, Sequence[int]], expected: Mapping[str, Tensor], spec: DraftSpec, file: Path
) -> None:
    """Refuse a checkpoint whose tensors are not the expected ones; those that may be left out are filled in before.

    Args:
        found: Shapes by canonical name.
        expected: As `expected_tensors` gives them.
        spec: The draft.
        file: Its weights, for messages.

    Raises:
        InputError: A tensor is missing, unknown or misshapen.
    """
    missing, unknown = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    if missing:
        raise InputError(
            "the draft's weights lack tensors",
            file=file,
            key=missing[0],
            found=f"{len(missing)} missing: {', '.join(missing[:4])}" + (f"; unknown: {unknown[0]}" if unknown else ""),
            expected="the tensors of an EAGLE-3 draft with the config's flags",
            next_step="export the draft whole; an engine would leave them at random",
        )
    if unknown:
        raise InputError(
            "the draft's weights contain tensors that its config does not have",
            file=file,
            key=unknown[0],
            found=f"{len(unknown)} unknown: {', '.join(unknown[:4])}",
            expected="the tensors of an EAGLE-3 draft with the config's flags",
            next_step="set the flag that belongs to them (norm_before_fc, fc_norm), or export the draft again; "
            "an engine would drop them silently",
        )
    for name, shape in found.items():
        if tuple(shape) != tuple(expected[name].shape):
            raise InputError(
                "the tensor has another shape than the config says",
                file=file,
                key=name,
                found=list(shape),
                expected=_shape_reason(name, list(expected[name].shape), spec),
            )


def _shape_reason(name: str, shape: list[int], spec: DraftSpec) -> str:
    if name == "fc.weight":
        boundaries = shape[1] // spec.target_hidden_size
        return f"{shape}: [hidden_size, {boundaries} boundaries * {spec.target_hidden_size}]"
    return str(shape)
