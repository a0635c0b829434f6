"""Captures broken on purpose, as engines have broken them: the properties must see each one, and shrink it."""

from __future__ import annotations

from typing import Any, cast

import hypothesis
import pytest
import torch
from torch import Tensor, nn

from harness.testing import LayerCase, layer_cases, tiny_target
from suites.contract import properties
from suites.contract.properties import Captured, capture, ids_of, states


def _moved(by: int) -> Captured:
    def broken(model: nn.Module, ids: Tensor, boundaries: tuple[int, ...]) -> Tensor:
        layers = cast(Any, model).config.num_hidden_layers
        return capture(model, ids, tuple(min(max(boundary + by, 0), layers) for boundary in boundaries))

    return broken


def _first_off(model: nn.Module, ids: Tensor, boundaries: tuple[int, ...]) -> Tensor:
    first = boundaries[0] - 1 if boundaries[0] else 1
    return capture(model, ids, (first, *boundaries[1:]))


def _sorted(model: nn.Module, ids: Tensor, boundaries: tuple[int, ...]) -> Tensor:
    return capture(model, ids, tuple(sorted(boundaries)))


def _once_each(model: nn.Module, ids: Tensor, boundaries: tuple[int, ...]) -> Tensor:
    return capture(model, ids, tuple(dict.fromkeys(boundaries)))


@torch.no_grad()
def _post_norm(model: nn.Module, ids: Tensor, boundaries: tuple[int, ...]) -> Tensor:
    """Take transformers' entry N, which is after the final norm, for boundary N."""
    hidden = cast(Any, model)(ids, output_hidden_states=True).hidden_states
    return torch.cat([hidden[boundary] for boundary in boundaries], dim=-1)


@torch.no_grad()
def _no_residual(model: nn.Module, ids: Tensor, boundaries: tuple[int, ...]) -> Tensor:
    """Take what the block adds to the residual stream, without the stream."""
    zeros = torch.zeros(*ids.shape, properties.WIDTH)
    needed = {*boundaries, *(boundary - 1 for boundary in boundaries if boundary)}
    found = {boundary: capture(model, ids, (boundary,)) for boundary in needed}
    added = [found[boundary] - (found[boundary - 1] if boundary else zeros) for boundary in boundaries]
    return torch.cat(added, dim=-1)


def _four(model: nn.Module, ids: Tensor, boundaries: tuple[int, ...]) -> Tensor:
    return capture(model, ids, (*boundaries, boundaries[-1]))


BROKEN: dict[str, tuple[Captured, set[str]]] = {
    "+1": (_moved(1), {"content"}),
    "-1": (_moved(-1), {"content", "final_norm"}),
    "one id off": (_first_off, {"content", "order_and_repeats"}),
    "order sorted": (_sorted, {"content", "order_and_repeats"}),
    "duplicates dropped": (_once_each, {"width", "content", "final_norm", "order_and_repeats"}),
    "post-norm last": (_post_norm, {"final_norm"}),
    "missing residual": (_no_residual, {"content", "final_norm"}),
    "a slot too many": (_four, {"width", "content", "final_norm", "order_and_repeats"}),
}
PROPERTIES = {
    "width": properties.width,
    "content": properties.content,
    "final_norm": properties.final_norm,
    "order_and_repeats": properties.order_and_repeats,
}


def _fails(name: str, broken: Captured, case: LayerCase) -> bool:
    try:
        PROPERTIES[name](broken, case)
    except (AssertionError, ValueError):
        # ValueError: there are more slots than boundaries, or fewer.
        return True
    return False


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_capture_is_seen(fault: str) -> None:
    broken, seen_by = BROKEN[fault]
    case = LayerCase("LlamaForCausalLM", 4, (3, 1, 1, 4))
    assert {name for name in PROPERTIES if _fails(name, broken, case)} == seen_by
    assert not any(_fails(name, capture, case) for name in PROPERTIES)


@pytest.mark.parametrize(
    ("fault", "smallest"),
    [
        ("+1", LayerCase("LlamaForCausalLM", 1, (0,))),
        ("-1", LayerCase("LlamaForCausalLM", 2, (1,))),
        ("order sorted", LayerCase("LlamaForCausalLM", 1, (1, 0))),
        ("missing residual", LayerCase("LlamaForCausalLM", 2, (1,))),
    ],
)
def test_a_broken_capture_shrinks_to_the_smallest_target_that_shows_it(fault: str, smallest: LayerCase) -> None:
    broken, _ = BROKEN[fault]
    found = hypothesis.find(
        layer_cases(),
        lambda case: _fails("content", broken, case),
        settings=hypothesis.settings(max_examples=400, database=None, derandomize=True, deadline=None),
    )
    assert found == smallest


def test_post_norm_shrinks_to_one_block() -> None:
    found = hypothesis.find(
        layer_cases(),
        lambda case: _fails("final_norm", _post_norm, case),
        settings=hypothesis.settings(max_examples=400, database=None, derandomize=True, deadline=None),
    )
    assert found == LayerCase("LlamaForCausalLM", 1, (1,))
    assert len(states(found, ids_of())) == 2
    assert tiny_target("LlamaForCausalLM", layers=1) is tiny_target("LlamaForCausalLM", layers=1)
