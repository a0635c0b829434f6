"""An EAGLE-3 draft from its checkpoint: names, shapes and vocabulary maps checked before anything runs."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from harness.errors import InputError
from harness.models.checkpoint import read_tensors, weight_files
from harness.models.draft import Eagle3Draft
from harness.pair.draft_spec import DraftSpec

__all__ = ["load_draft", "vocabulary_map"]

# Buffers that some writers save and every reader computes anew.
_IGNORED = ("midlayer.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq")


def load_draft(
    spec: DraftSpec,
    *,
    num_boundaries: int,
    target_embedding: Tensor,
    dtype: torch.dtype,
    device: str | torch.device = "cpu",
) -> Eagle3Draft:
    """Load a draft.

    Args:
        spec: Its description.
        num_boundaries: How many boundaries are concatenated for its `fc`.
        target_embedding: The target's table [vocab, H], used where the checkpoint ships none.
        dtype: What it computes in; weights are converted.
        device: Where it computes.

    Raises:
        InputError: A tensor is missing, unknown, misshapen or not finite, or the vocabulary map is out of range.
    """
    file = weight_files(spec.path)[0]
    tensors = _read(spec)
    for name in _IGNORED:
        tensors.pop(name, None)
    expected = _expected(spec, num_boundaries)
    _fill_optional(tensors, spec, target_embedding, expected, file)
    _check_names(tensors, expected, file)
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            raise InputError(
                "the tensor has another shape than the config says",
                file=file,
                key=name,
                found=list(tensor.shape),
                expected=_shape_reason(name, list(expected[name].shape), spec, num_boundaries),
            )
        if tensor.is_floating_point() != expected[name].is_floating_point() and name not in ("d2t", "t2d"):
            raise InputError(
                "the tensor holds no weights",
                file=file,
                key=name,
                found=tensor.dtype,
                expected="floating-point numbers",
            )
    _check_map(tensors, spec, file)
    draft = Eagle3Draft(spec, num_boundaries)
    draft.load_state_dict(tensors)
    return draft.to(device=device, dtype=dtype).eval().requires_grad_(False)


def _read(spec: DraftSpec) -> dict[str, Tensor]:
    """Return a checkpoint's tensors by the names used here."""
    tensors: dict[str, Tensor] = {}
    written: dict[str, str] = {}
    for name, tensor in read_tensors(spec.path).items():
        canonical = _canonical(name)
        if canonical in tensors:
            raise InputError(
                "the draft's weights hold a tensor twice",
                file=weight_files(spec.path)[0],
                key=canonical,
                found=f"{written[canonical]} and {name}",
                expected="one of them",
                next_step="export the draft again; which of them an engine takes is chance",
            )
        tensors[canonical], written[canonical] = tensor, name
    return tensors


def _expected(spec: DraftSpec, num_boundaries: int) -> dict[str, Tensor]:
    """Return the tensors that a draft has, without memory for them: a slip in the config can ask for terabytes."""
    try:
        with torch.device("meta"):
            return Eagle3Draft(spec, num_boundaries).state_dict()
    except (RuntimeError, OverflowError, TypeError) as error:
        raise InputError(
            "no draft of these sizes can be built",
            file=spec.config_file,
            key="intermediate_size, num_attention_heads, head_dim",
            found=f"{spec.intermediate_size}, {spec.num_heads}, {spec.head_dim}",
            expected="the sizes of the draft's tensors",
            next_step=str(error).split("\n")[0],
        ) from None


def _canonical(name: str) -> str:
    """Return the name used here: `midlayer.` for `layers.0.`, no leading `model.`."""
    name = name.removeprefix("model.")
    return f"midlayer.{name.removeprefix('layers.0.')}" if name.startswith("layers.0.") else name


def _fill_optional(
    tensors: dict[str, Tensor], spec: DraftSpec, embedding: Tensor, expected: dict[str, Tensor], file: Path
) -> None:
    if "embed_tokens.weight" not in tensors:
        if embedding.shape != expected["embed_tokens.weight"].shape:
            raise InputError(
                "the draft ships no embedding and the target's does not fit it",
                file=file,
                key="embed_tokens.weight",
                found=list(embedding.shape),
                expected=list(expected["embed_tokens.weight"].shape),
            )
        tensors["embed_tokens.weight"] = embedding
    if spec.tie_word_embeddings and "lm_head.weight" not in tensors:
        if spec.draft_vocab_size != spec.vocab_size:
            raise InputError(
                "the head is tied to the embedding, whose vocabulary is another",
                file=spec.config_file,
                key="tie_word_embeddings",
                found=f"draft_vocab_size {spec.draft_vocab_size}, vocab_size {spec.vocab_size}",
                expected="false, and lm_head.weight in the file",
            )
        tensors["lm_head.weight"] = tensors["embed_tokens.weight"]
    if spec.draft_vocab_size == spec.vocab_size:
        tensors.setdefault("d2t", torch.zeros(spec.vocab_size, dtype=torch.int64))
        tensors.setdefault("t2d", torch.ones(spec.vocab_size, dtype=torch.bool))


def _check_names(tensors: dict[str, Tensor], expected: dict[str, Tensor], file: Path) -> None:
    missing = sorted(expected.keys() - tensors.keys())
    unknown = sorted(tensors.keys() - expected.keys())
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
            "the draft's weights hold tensors that its config has no place for",
            file=file,
            key=unknown[0],
            found=f"{len(unknown)} unknown: {', '.join(unknown[:4])}",
            expected="the tensors of an EAGLE-3 draft with the config's flags",
            next_step="set the flag that belongs to them (norm_before_fc, fc_norm), or export the draft again; "
            "an engine would drop them silently",
        )


def _shape_reason(name: str, shape: list[int], spec: DraftSpec, num_boundaries: int) -> str:
    if name == "fc.weight":
        return f"{shape}: [hidden_size, {num_boundaries} boundaries * {spec.target_hidden_size}]"
    return str(shape)


def _check_map(tensors: dict[str, Tensor], spec: DraftSpec, file: Path) -> None:
    d2t = tensors["d2t"]
    if d2t.is_floating_point() or d2t.is_complex() or d2t.dtype == torch.bool:
        raise InputError(
            "the vocabulary map holds no integers", file=file, key="d2t", found=d2t.dtype, expected="int64"
        )
    if tensors["t2d"].dtype != torch.bool:
        raise InputError("the mask is not boolean", file=file, key="t2d", found=tensors["t2d"].dtype, expected="bool")
    targets = torch.arange(spec.draft_vocab_size) + d2t.to(torch.int64)
    outside = (targets < 0) | (targets >= spec.vocab_size)
    if bool(outside.any()):
        first = int(outside.nonzero()[0])
        raise InputError(
            "the vocabulary map leaves the target's vocabulary",
            file=file,
            key=f"d2t[{first}]",
            found=f"draft id {first} + {int(d2t[first])} = {int(targets[first])}",
            expected=f"a target id from 0 to {spec.vocab_size - 1}",
            next_step="d2t holds offsets: target id = draft id + d2t[draft id]",
        )


def vocabulary_map(spec: DraftSpec) -> tuple[Tensor, Tensor] | None:
    """Return `d2t` (int64 [draft vocab]) and `t2d` (bool [vocab]) of a checkpoint, `None` where it ships no map.

    Raises:
        InputError: A file is corrupt, or a map is out of range.
    """
    tensors = _read(spec)
    if "d2t" not in tensors or "t2d" not in tensors:
        return None
    file = weight_files(spec.path)[0]
    for name, length in (("d2t", spec.draft_vocab_size), ("t2d", spec.vocab_size)):
        if tensors[name].shape != (length,):
            raise InputError(
                "the map has another length than the config says",
                file=file,
                key=name,
                found=list(tensors[name].shape),
                expected=[length],
            )
    _check_map(tensors, spec, file)
    return tensors["d2t"].to(torch.int64), tensors["t2d"]
