"""Capture at boundaries, against transformers' own hidden states."""

from __future__ import annotations

import pytest
import torch

from harness.errors import InputError
from harness.models.precision import exact
from harness.models.target import Target
from suites.support.random_pair import LAYERS, WIDTH, random_ids


def test_boundaries_are_the_hidden_states_and_the_last_is_before_the_final_norm(target64: Target) -> None:
    ids = random_ids(2, 11)
    with target64.capture(tuple(range(LAYERS + 1))) as capture, exact(torch.float64):
        output = target64.model(input_ids=ids, output_hidden_states=True)
    for boundary in range(LAYERS):
        torch.testing.assert_close(capture.state(boundary), output.hidden_states[boundary], rtol=0, atol=0)
    last = capture.state(LAYERS)
    assert (last - output.hidden_states[-1]).abs().max() > 0.1
    with exact(torch.float64):
        normed = target64.model.get_submodule("model.norm")(last)
    torch.testing.assert_close(normed, output.hidden_states[-1], rtol=0, atol=0)


def test_order_and_repetition_of_boundaries_are_kept(target64: Target) -> None:
    ids = random_ids(1, 7)
    with target64.capture((3, 0, 3)) as capture:
        target64.forward(ids)
        parts = capture.concatenated().split(WIDTH, dim=-1)
        for part, boundary in zip(parts, (3, 0, 3), strict=True):
            assert torch.equal(part, capture.state(boundary))
    assert not torch.equal(parts[0], parts[1])


def test_captured_states_are_copies(target64: Target) -> None:
    with target64.capture((1,)) as capture:
        target64.forward(random_ids(1, 5))
        first = capture.state(1)
        kept = first.clone()
        target64.forward(random_ids(1, 6))
    assert torch.equal(first, kept)


@pytest.mark.parametrize("boundaries", [(-1, 1, 2), (0, 1, LAYERS + 1)])
def test_a_boundary_outside_the_target_is_refused(target64: Target, boundaries: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="the boundary does not exist"):
        target64.capture(boundaries)


def test_hooks_are_gone_after_the_block(target64: Target) -> None:
    blocks = list(target64.model.get_submodule("model.layers").children())

    def hooks() -> list[int]:
        return [len(block._forward_hooks) + len(block._forward_pre_hooks) for block in blocks]

    before = hooks()
    with target64.capture((0, 2)):
        assert hooks() != before
    assert hooks() == before
