"""The `contract` detector: maps that contradict each other, and ids that are served differently than trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor

from harness.commands.check import check
from harness.commands.prepare import prepare
from suites.support.damage import edit_tensors
from suites.support.findings import states


def _flip_mask(tensors: dict[str, Tensor]) -> None:
    on, off = int(tensors["t2d"].nonzero()[-1]), int((~tensors["t2d"]).nonzero()[0])
    tensors["t2d"][on], tensors["t2d"][off] = False, True


def _short_mask(tensors: dict[str, Tensor]) -> None:
    tensors["t2d"][int(tensors["t2d"].nonzero()[-1])] = False


def _same_target_twice(tensors: dict[str, Tensor]) -> None:
    tensors["d2t"][-1] = tensors["d2t"][-2] - 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_flip_mask, "t2d and d2t in .* disagree on 2 target tokens"),
        (_short_mask, "marks 39 tokens, draft_vocab_size is 40"),
        (_same_target_twice, "gives 40 draft tokens only 39 different target tokens"),
    ],
)
def test_contract_sees_maps_that_contradict_each_other(
    recorded: Path, change: Callable[[dict[str, Tensor]], None], message: str
) -> None:
    edit_tensors(recorded.parent / "draft" / "model.safetensors", change)
    result = check(prepare(recorded))
    assert states(result)["contract"] == "regression"
    assert (result.verdict, result.exit_code) == ("regression", 1)
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(result.findings["contract"].message)


def test_contract_names_ids_that_are_served_differently_than_trained(recorded: Path) -> None:
    """Another convention reads the same integers as other layers: found without a forward, and measured too."""
    config = recorded.parent / "draft" / "config.json"
    config.write_text(config.read_text().replace("[-1, 1, 3]", "[0, 1, 3]"))
    recorded.write_text(recorded.read_text().replace("[decode]", 'served_by = "eagle"\n[decode]'))
    result = check(prepare(recorded))
    message = result.findings["contract"].message
    assert states(result)["contract"] == "regression"
    assert "[1, 2, 4] (specforge)" in message
    assert "eagle serves [0, 1, 3] (boundary = id)" in message
