"""Faults of the decoders' caches, planted in them: the detectors of what the draft computed see each, by its golden."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from harness.commands.check import CheckResult, check
from harness.commands.prepare import prepare
from harness.engines.reference import batched, draft_cache, sequential
from harness.engines.reference.draft_cache import DraftCache
from harness.engines.reference.ragged_cache import RaggedCache
from harness.models.draft import attend
from suites.support.findings import states

PROMPTS = {"sequential": "6", "batched": "12"}
STEPS = 4


class _StaleKeys(DraftCache):
    """The key of a rejected token is not written over by that of the token in its place."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        rows, _, capacity, _ = self._keys.shape
        self._calls = 0
        # The tokens that the latest chain's own steps read, by slot.
        self._chain = torch.full((rows, capacity), -1)

    def run(self, tokens: Tensor, g: Tensor, first: int) -> Tensor:
        positions = torch.arange(first, first + tokens.shape[1]).expand_as(tokens)
        return self._run(lambda: super(_StaleKeys, self).run(tokens, g, first), tokens, positions)

    def run_ragged(self, tokens: Tensor, g: Tensor, positions: Tensor) -> Tensor:
        return self._run(lambda: super(_StaleKeys, self).run_ragged(tokens, g, positions), tokens, positions)

    def _run(self, run: Callable[[], Tensor], tokens: Tensor, positions: Tensor) -> Tensor:
        extends = self._calls % STEPS == 0
        self._calls += 1
        before = self._keys.clone(), self._values.clone()
        output = run()
        if extends:
            read = torch.gather(self._chain, 1, positions)
            rows, columns = torch.nonzero((read >= 0) & (read != tokens), as_tuple=True)
            slots = positions[rows, columns]
            self._keys[rows, :, slots] = before[0][rows, :, slots]
            self._values[rows, :, slots] = before[1][rows, :, slots]
        self._chain.scatter_(1, positions, torch.full_like(tokens, -1) if extends else tokens)
        return output


def _padded_slot_seen(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Attend to a slot that was never written too."""
    wider = None if mask is None else F.pad(mask, (0, 1), value=True)
    return attend(q, F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1)), wider)


def _next_slot_seen(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Attend to the slot after each position too: in shorter rows it holds padding, or a rejected token."""
    if mask is not None:
        mask = mask | mask.roll(1, -1)
    return attend(q, k, v, mask)


class _NextSlotSeen(RaggedCache):
    """The target attends to the slot after each position too."""

    def at(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        mask = super().at(positions, dtype)
        return torch.maximum(mask, mask.roll(1, -1))


def _stale(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sequential, "DraftCache", _StaleKeys)
    patch.setattr(batched, "DraftCache", _StaleKeys)


# By fault: how it is planted, and the first stage that it reaches.
FAULTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "stale keys": (_stale, "step 1"),
    "a padded slot": (lambda patch: patch.setattr(draft_cache, "attend", _padded_slot_seen), "step 1"),
    "the next slot": (lambda patch: patch.setattr(draft_cache, "attend", _next_slot_seen), "step 1"),
    "the target's next slot": (lambda patch: patch.setattr(batched, "RaggedCache", _NextSlotSeen), "slot 0"),
}


def _check(mode: str) -> CheckResult:
    return check(prepare("tiny", engine=f"reference:{mode}"), prompts=PROMPTS[mode])


@pytest.mark.parametrize("mode", PROMPTS)
def test_healthy_caches_pass(mode: str) -> None:
    result = _check(mode)
    found = states(result)
    assert {found[name] for name in ("stages", "proposals", "likelihood")} == {"pass"}
    assert result.exit_code == 0
    figures = result.findings.likelihood.measured
    # At its own rounds alone, for the steps that read the text's tokens: fewer than at all positions, and not few.
    rounds = sum(len(record.rounds or ()) for record in result.measurement.run.records)
    assert rounds < figures.evaluated <= STEPS * rounds
    # Rounding, and no more, at many different positions.
    assert figures.noise_floor is not None
    assert abs(figures.loss.estimate) < figures.noise_floor


@pytest.mark.parametrize(
    ("fault", "mode"),
    [
        ("stale keys", "sequential"),
        ("stale keys", "batched"),
        ("a padded slot", "sequential"),
        ("a padded slot", "batched"),
        # One prompt at a time, the slot after the last position is not there.
        ("the next slot", "batched"),
        ("the target's next slot", "batched"),
    ],
)
def test_a_fault_of_a_cache_is_red(fault: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, first = FAULTS[fault]
    plant(monkeypatch)
    result = _check(mode)
    assert states(result)["stages"] == "changed", result.findings["stages"].message
    assert result.findings.stages.measured.first == first
    assert result.exit_code == 1


def test_stale_keys_change_proposals_too(monkeypatch: pytest.MonkeyPatch) -> None:
    _stale(monkeypatch)
    assert states(_check("batched"))["proposals"] == "changed"
