"""An EAGLE-3 draft from its checkpoint: names, shapes and vocabulary maps checked before anything runs."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from harness.errors import InputError
from harness.models.checkpoint import read_tensors, weight_files
from harness.models.draft import Eagle3Draft
from harness.models.draft_contract import by_canonical_name, expected_tensors, require_tensors
from harness.models.quantised import quantisation
from harness.pair.draft_spec import DraftSpec

__all__ = ["load_draft", "vocabulary_map"]


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
        target_embedding: The target's table [vocab, H], used if the checkpoint does not ship one.
        dtype: What it computes in; weights are converted.
        device: Where it computes.

    Raises:
        InputError: A tensor is missing, unknown, misshapen or not finite, or the vocabulary map is out of range.
    """
    if spec.mla is not None:
        raise InputError(
            "the reference engine runs drafts of one LLaMA layer, and this one's attention is latent (MLA)",
            file=spec.config_file,
            key="architectures",
            found=spec.architecture,
            expected="a draft such as LlamaForCausalLMEagle3",
            next_step="harness trace --static and harness layers read this draft",
        )
    method = quantisation(dict(spec.layers.config.values))
    if method is not None:
        raise InputError(
            "the reference engine does not run quantised drafts",
            file=spec.config_file,
            key="quantization_config.quant_method",
            found=method.get("quant_method"),
            expected="a draft whose weights are floating-point numbers, as it was trained",
            next_step="name the checkpoint that it was made from, or measure it on the engine that serves it",
        )
    file = weight_files(spec.path)[0]
    tensors = _read(spec)
    expected = expected_tensors(spec, num_boundaries)
    _fill_optional(tensors, spec, target_embedding, expected, file)
    require_tensors({name: tensor.shape for name, tensor in tensors.items()}, expected, spec, file)
    for name, tensor in tensors.items():
        if tensor.is_floating_point() != expected[name].is_floating_point() and name not in ("d2t", "t2d"):
            raise InputError(
                "the tensor does not hold weights",
                file=file,
                key=name,
                found=tensor.dtype,
                expected="floating-point numbers",
            )
    _check_map(tensors, spec, file)
    # Without memory of its own: the weights are those that were read, and the target's table stays shared.
    with torch.device("meta"):
        draft = Eagle3Draft(spec, num_boundaries)
    kinds = {name: dtype if tensor.is_floating_point() else tensor.dtype for name, tensor in expected.items()}
    draft.load_state_dict({name: tensor.to(kinds[name]) for name, tensor in tensors.items()}, assign=True)
    return draft.to(device=device).eval().requires_grad_(False)


def _read(spec: DraftSpec) -> dict[str, Tensor]:
    """Return a checkpoint's tensors by the names used here, without those of flags that are not acted on."""
    return by_canonical_name(read_tensors(spec.path), spec, weight_files(spec.path)[0])


def _fill_optional(
    tensors: dict[str, Tensor], spec: DraftSpec, embedding: Tensor, expected: dict[str, Tensor], file: Path
) -> None:
    if "embed_tokens.weight" not in tensors:
        if embedding.shape != expected["embed_tokens.weight"].shape:
            raise InputError(
                "the draft does not ship an embedding, and the target's does not fit it",
                file=file,
                key="embed_tokens.weight",
                found=list(embedding.shape),
                expected=list(expected["embed_tokens.weight"].shape),
            )
        tensors["embed_tokens.weight"] = embedding
    if spec.tie_word_embeddings and "lm_head.weight" not in tensors:
        if spec.draft_vocab_size != spec.vocab_size:
            raise InputError(
                "the head is tied to the embedding, which has another vocabulary",
                file=spec.config_file,
                key="tie_word_embeddings",
                found=f"draft_vocab_size {spec.draft_vocab_size}, vocab_size {spec.vocab_size}",
                expected="false, and lm_head.weight in the file",
            )
        tensors["lm_head.weight"] = tensors["embed_tokens.weight"]
    if spec.draft_vocab_size == spec.vocab_size:
        tensors.setdefault("d2t", torch.zeros(spec.vocab_size, dtype=torch.int64))
        tensors.setdefault("t2d", torch.ones(spec.vocab_size, dtype=torch.bool))


def _check_map(tensors: dict[str, Tensor], spec: DraftSpec, file: Path) -> None:
    d2t = tensors["d2t"]
    if d2t.is_floating_point() or d2t.is_complex() or d2t.dtype == torch.bool:
        raise InputError(
            "the vocabulary map does not hold integers", file=file, key="d2t", found=d2t.dtype, expected="int64"
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
    """Return `d2t` (int64 [draft vocab]) and `t2d` (bool [vocab]) of a checkpoint; `None` if it does not ship a map.

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
