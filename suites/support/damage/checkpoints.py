"""Damage that the checkpoints of target and draft have in common."""

from __future__ import annotations

import math

import torch

from suites.support.damage.editing import (
    PAIR,
    TARGET_WEIGHTS,
    Damage,
    all_of,
    broken_json,
    change_tensor,
    into_file,
    into_folder,
    put,
    remove,
    remove_tree,
    truncate,
    with_tensor,
    without_tensor,
    write,
)


def broken_folder(name: str) -> list[Damage]:
    """Return damage to a checkpoint's folder and to its files as wholes."""
    config, weights = f"{name}/config.json", f"{name}/model.safetensors"
    return [
        Damage(f"{name} folder missing", remove_tree(name), (PAIR, name, "is not a checkpoint folder", "expected")),
        Damage(f"{name} folder is a file", into_file(name), (PAIR, name, "is not a checkpoint folder", "expected")),
        Damage(
            f"{name} weights missing", remove(weights), (name, "does not have weights", "expected model.safetensors")
        ),
        Damage(f"{name} weights are a folder", into_folder(weights), (name, "does not have weights", "expected")),
        Damage(f"{name} weights empty", write(weights, b""), (weights, "cannot be read", "Next: copy")),
        Damage(f"{name} weights truncated", truncate(weights), (weights, "cannot be read", "Next: copy")),
        Damage(f"{name} weights garbage", write(weights, b"\xff" * 999), (weights, "cannot be read", "Next: copy")),
        Damage(
            f"{name} weights' index names a missing shard",
            all_of(
                remove(weights),
                write(f"{weights}.index.json", b'{"weight_map": {"fc.weight": "model-1-of-2.safetensors"}}'),
            ),
            (f"{weights}.index.json", "weight_map", "found model-1-of-2.safetensors", "expected"),
        ),
        Damage(
            f"{name} weights' index names a file elsewhere",
            all_of(
                remove(weights),
                write(f"{weights}.index.json", b'{"weight_map": {"fc.weight": "../model.safetensors"}}'),
            ),
            (f"{weights}.index.json", "weight_map", "outside of the checkpoint", "found ../model.safetensors"),
        ),
        Damage(
            f"{name} weights' index names no files",
            all_of(remove(weights), write(f"{weights}.index.json", b'{"weight_map": []}')),
            (f"{weights}.index.json", "weight_map", "found []", "expected"),
        ),
        *broken_json(config, f"{name} config", "Next: point the pair file"),
    ]


def broken_weights(file: str, *, norm: str, matrix: str) -> list[Damage]:
    """Return damage to a checkpoint's tensors.

    Args:
        file: The weights.
        norm: The name of a norm's tensor in them.
        matrix: The name of a matrix in them.
    """
    name = file.partition("/")[0]
    return [
        Damage(
            f"{name} NaN",
            change_tensor(file, matrix, put(math.nan, (3, 5))),
            (file, matrix, "finite", "1 of 1536", "Next:"),
        ),
        Damage(
            f"{name} inf", change_tensor(file, norm, put(-math.inf, (7,))), (file, norm, "finite", "1 of 32", "Next:")
        ),
        Damage(f"{name} tensor missing", without_tensor(file, norm), (file, norm, "lack tensors")),
        Damage(
            f"{name} tensor unknown",
            with_tensor(file, f"{norm}_scale", torch.ones(2)),
            (file, f"{norm}_scale", "its config does not have", "expected"),
        ),
        Damage(
            f"{name} tensor of another shape",
            change_tensor(file, norm, lambda tensor: tensor[:-1].clone()),
            (norm, "[31]", "[32]"),
        ),
        Damage(
            f"{name} tensor transposed",
            change_tensor(file, matrix, lambda tensor: tensor.T.contiguous()),
            (matrix, "[32, 48]", "[48, 32]"),
        ),
        Damage(
            f"{name} tensor of integers",
            change_tensor(file, matrix, lambda tensor: tensor.to(torch.int32)),
            (file, matrix, "does not hold weights", "I32" if file == TARGET_WEIGHTS else "torch.int32", "expected"),
        ),
        Damage(
            f"{name} tensor of complex numbers",
            change_tensor(file, norm, lambda tensor: tensor.to(torch.complex64)),
            (file, norm, "does not hold weights", "C64" if file == TARGET_WEIGHTS else "torch.complex64", "expected"),
        ),
    ]
