"""Properties of a capture, as functions that raise: the tests run them on right captures and on broken ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from harness.models.capture import BoundaryCapture
from harness.testing import LayerCase, tiny_target

__all__ = ["Captured", "capture", "content", "final_norm", "ids_of", "order_and_repeats", "states", "width"]

# From a model, ids and boundaries to the concatenation [B, T, len(boundaries) * H].
Captured = Callable[[nn.Module, Tensor, tuple[int, ...]], Tensor]
WIDTH = 32


def ids_of(seed: int = 0, rows: int = 2, length: int = 9) -> Tensor:
    """Return token ids, int64 [rows, length]."""
    return torch.randint(0, 64, (rows, length), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def capture(model: nn.Module, ids: Tensor, boundaries: tuple[int, ...]) -> Tensor:
    """Return the states that the harness captures, concatenated."""
    layers = cast(Any, model).config.get_text_config().num_hidden_layers
    with BoundaryCapture(model, layers, boundaries) as captured:
        model(ids)
        return captured.concatenated()


@torch.no_grad()
def states(case: LayerCase, ids: Tensor) -> list[Tensor]:
    """Return transformers' own hidden states: boundaries 0 to N-1, and the state after the final norm."""
    model: Any = tiny_target(case.architecture, layers=case.num_layers)
    return list(model(ids, output_hidden_states=True).hidden_states)


def _slots(concatenated: Tensor) -> list[Tensor]:
    return list(concatenated.split(WIDTH, dim=-1))


def width(captured: Captured, case: LayerCase) -> None:
    """One H-wide slot for each entry, repeats included."""
    model = tiny_target(case.architecture, layers=case.num_layers)
    ids = ids_of()
    assert captured(model, ids, case.boundaries).shape == (*ids.shape, len(case.boundaries) * WIDTH)


def content(captured: Captured, case: LayerCase) -> None:
    """Each slot below N is transformers' hidden state of that index."""
    model, ids = tiny_target(case.architecture, layers=case.num_layers), ids_of()
    expected = states(case, ids)
    for slot, boundary in zip(_slots(captured(model, ids, case.boundaries)), case.boundaries, strict=True):
        if boundary < case.num_layers:
            assert torch.equal(slot, expected[boundary]), boundary


def final_norm(captured: Captured, case: LayerCase) -> None:
    """The final norm turns the state captured at N into transformers' last hidden state, which it is not by itself."""
    model, ids = tiny_target(case.architecture, layers=case.num_layers), ids_of()
    last = states(case, ids)[-1]
    norm = cast(Any, model).get_decoder().norm
    for slot, boundary in zip(_slots(captured(model, ids, case.boundaries)), case.boundaries, strict=True):
        if boundary == case.num_layers:
            assert torch.allclose(norm(slot), last, atol=1e-5)
            assert not torch.allclose(slot, last, atol=1e-3)


def order_and_repeats(captured: Captured, case: LayerCase) -> None:
    """Permuted and repeated boundaries permute and repeat the slots."""
    model, ids = tiny_target(case.architecture, layers=case.num_layers), ids_of()
    slots = _slots(captured(model, ids, case.boundaries))
    turned = tuple(reversed(case.boundaries)) + case.boundaries[:1]
    again = _slots(captured(model, ids, turned))
    assert len(again) == len(turned)
    assert all(torch.equal(one, other) for one, other in zip(again, [*reversed(slots), slots[0]], strict=True))
