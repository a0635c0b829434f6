"""float64 that really is float64."""

from __future__ import annotations

from typing import Any

import torch

from harness.models.precision import exact
from harness.models.target import Target
from suites.support.random_pair import WIDTH, random_ids


def test_float64_is_float64_throughout(target64: Target) -> None:
    """transformers' norms and rotary embeddings fall back to float32; under `exact` nothing does."""
    ids = random_ids(1, 9)
    ours = target64.forward(ids)
    with torch.inference_mode():
        theirs = target64.model(input_ids=ids).logits
    assert ours.dtype == torch.float64
    assert 1e-8 < (ours - theirs).abs().max() < 1e-3
    norm: Any = target64.model.get_submodule("model.norm")
    x = torch.randn(3, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    by_hand = norm.weight * x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)
    with exact(torch.float64):
        torch.testing.assert_close(norm(x), by_hand, rtol=1e-14, atol=1e-14)
    assert (norm(x) - by_hand).abs().max() > 1e-9


def test_float32_is_left_alone() -> None:
    with exact(torch.float32):
        assert torch.zeros(1, dtype=torch.float64).float().dtype == torch.float32
