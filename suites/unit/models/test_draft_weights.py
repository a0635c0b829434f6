"""Drafts from checkpoints: names, maps and embeddings."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch

from harness.models.draft_weights import load_draft
from harness.pair.draft_spec import read_draft_spec
from suites.support.random_pair import VOCAB, WIDTH, load_written_draft, write_draft


@pytest.mark.parametrize("prefix", ["midlayer.", "layers.0.", "model.layers.0."])
def test_both_key_styles_load_to_the_same_draft(tmp_path: Path, prefix: str) -> None:
    plain = load_written_draft(tmp_path / "a")
    write_draft(tmp_path / "b")
    file = tmp_path / "b" / "model.safetensors"
    tensors = {name.replace("midlayer.", prefix): value for name, value in safetensors.torch.load_file(file).items()}
    safetensors.torch.save_file(tensors, file)
    other = load_draft(
        read_draft_spec(tmp_path / "b"),
        num_boundaries=3,
        target_embedding=plain.embed_tokens.weight,
        dtype=torch.float64,
    )
    for name, value in plain.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


def test_a_full_vocabulary_needs_no_map(tmp_path: Path) -> None:
    write_draft(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    del tensors["d2t"], tensors["t2d"]
    tensors["lm_head.weight"] = torch.randn(VOCAB, WIDTH)
    safetensors.torch.save_file(tensors, file)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"draft_vocab_size": 40', '"draft_vocab_size": null'))
    draft = load_draft(
        read_draft_spec(tmp_path), num_boundaries=3, target_embedding=torch.randn(VOCAB, WIDTH), dtype=torch.float32
    )
    ids = torch.arange(VOCAB)
    assert torch.equal(draft.to_target(ids), ids)


def test_the_drafts_own_embedding_wins(tmp_path: Path) -> None:
    write_draft(tmp_path)
    file = tmp_path / "model.safetensors"
    own = torch.randn(VOCAB, WIDTH)
    safetensors.torch.save_file(safetensors.torch.load_file(file) | {"embed_tokens.weight": own}, file)
    draft = load_draft(
        read_draft_spec(tmp_path), num_boundaries=3, target_embedding=torch.randn(VOCAB, WIDTH), dtype=torch.float32
    )
    assert torch.equal(draft.embed_tokens.weight, own)
