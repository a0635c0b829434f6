"""A fault at few positions of the built-in pair: its stage is named if it was sampled there, and no other stage is.

Of all sampled positions so few differ that the stages as a whole agree: states scrambled on their way to the draft in
one prompt, late in every text, or only between the positions that are sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import harness.engines.reference.engine as reference
from harness.commands.check import check
from harness.commands.prepare import prepare
from harness.counts.run import PromptRecord, TargetCheck
from harness.counts.stages import sample_positions
from harness.engines.reference.loaded import LoadedModels
from harness.engines.reference.replay import replay
from harness.golden.find import find_golden
from harness.golden.golden_class import DEFAULT
from harness.golden.store import load_golden
from harness.pair.pair import load_prompts
from harness.pair.prompts import Prompt
from suites.support.builtin_pairs import copy_pair
from suites.support.damage import edit_tensors

pytestmark = pytest.mark.slow

_TINY = prepare("tiny")
# Faults at few positions: at a larger alpha the noise of rounding, measured on all prompts, does not explain them.
_GATE = _TINY.settings.gate.model_copy(update={"alpha": 0.2})
PAIR = replace(_TINY, settings=_TINY.settings.model_copy(update={"gate": _GATE}))
GOLDEN = load_golden(find_golden(PAIR, DEFAULT))
PROMPTS = load_prompts(PAIR)


@dataclass(frozen=True)
class _Fault:
    """Scrambled states.

    Attributes:
        where: By a prompt's index, its number of tokens and its number of starts: at which of these.
        says: What the message has.
    """

    where: Callable[[int, int, int], range]
    says: str


# Positions past this one are few of those sampled, as in a server whose rotary cache ends too early.
LATE = sorted(
    len(prompt.ids) + start
    for prompt in PROMPTS
    for start in sample_positions(PAIR.limits.starts(GOLDEN.continuation(prompt.id)))
)[-5]
FAULTS = {
    "one prompt": _Fault(
        lambda index, _, starts: range(starts if index == 3 else 0), "none of the target's boundaries"
    ),
    "late in every text": _Fault(
        lambda _, tokens, starts: range(max(0, LATE - tokens), starts), "none of the target's boundaries"
    ),
    "between those that are sampled": _Fault(
        lambda index, _, starts: range(3, starts // 2 - 3) if index < 2 else range(0), "second run"
    ),
    "in every text, between those that are sampled": _Fault(
        lambda _index, _tokens, starts: range(3, starts // 2 - 3), "second run"
    ),
}


def _as_recorded(index: int) -> PromptRecord:
    """Return what a healthy run would give for a prompt, from the golden."""
    prompt, tensors = GOLDEN.document.prompts[index], GOLDEN.tensors[PROMPTS[index].id]
    length = len(tensors.continuation)
    assert tensors.proposals is not None
    return PromptRecord(
        id=prompt.id,
        category=prompt.category,
        prompt_hash=prompt.hash,
        prompt_tokens=prompt.tokens,
        continuation=GOLDEN.continuation(prompt.id),
        rounds=None,
        histogram=tuple(prompt.histogram),
        proposals=tensors.proposals.astype(np.int64),
        logprobs=tensors.logprobs,
        target=TargetCheck(np.ones(length, np.bool_), np.zeros(length, np.float32)),
        sketches=tensors.sketches,
    )


def _scrambling(where: Callable[[int, int, int], range]) -> Callable[..., list[PromptRecord]]:
    """Return a replay in which states are scrambled on their way to the draft, each time that it is run."""
    indices = {prompt.id: index for index, prompt in enumerate(PROMPTS)}

    def faulty(
        loaded: LoadedModels,
        prompts: Sequence[Prompt],
        texts: Sequence[tuple[int, ...]],
        *,
        at: Sequence[tuple[int, ...]] | None = None,
        advance: object = None,
    ) -> list[PromptRecord]:
        del advance
        records = []
        for row, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
            tokens = len(prompt.ids)
            starts = [tokens - 1 + start for start in where(indices[prompt.id], tokens, loaded.limits.starts(text))]

            def scramble(states: Tensor, starts: list[int] = starts) -> Tensor:
                states = states.clone()
                states[:, starts] = states[:, starts].flip(-1)
                return states

            if starts:
                chosen = None if at is None else [at[row]]
                records += replay(loaded, [prompt], [text], state_filter=scramble, at=chosen)
            else:
                records.append(_as_recorded(indices[prompt.id]))
        return records

    return faulty


@pytest.mark.parametrize("name", FAULTS)
def test_states_scrambled_at_few_positions_are_the_concatenations(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = FAULTS[name]
    monkeypatch.setattr(reference, "replay", _scrambling(fault.where))
    result = check(PAIR)
    # So few of all that were sampled that they agree as a whole; or past the fault the draft's steps differ too.
    assert str(result.findings.stages.state) == ("changed" if name.startswith("in every") else "pass")
    assert str(result.findings.proposals.state) == "changed"
    assert result.attribution is not None
    assert result.attribution.stage == "concat"
    assert fault.says in result.attribution.message


def test_what_a_second_run_cannot_tell_apart_names_no_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The draft's weights differ, at positions of which the golden has no states: each slot has its boundary's."""

    def faulty(loaded: LoadedModels, *arguments: Any, **options: Any) -> list[PromptRecord]:
        if "at" in options:
            return replay(loaded, *arguments, **options)
        records = [_as_recorded(index) for index in range(len(PROMPTS))]
        for record in records[:4]:
            assert record.proposals is not None
            record.proposals[5:40] = record.proposals[5:40, ::-1] + 1
        return records

    monkeypatch.setattr(reference, "replay", faulty)
    result = check(PAIR)
    assert str(result.findings.proposals.state) == "changed"
    assert result.attribution is not None
    assert result.attribution.stage == "not sampled"
    assert "d2t" not in result.attribution.message
    assert "each slot holds the state of its boundary" in result.attribution.message


@pytest.mark.parametrize("swapped", [2, 5])
def test_another_map_is_named_by_the_tokens_it_moves(swapped: int, tmp_path: Path) -> None:
    """However rare the tokens are: at none of the sampled positions need one of them be proposed."""
    file = copy_pair(tmp_path)
    counts = np.bincount(np.concatenate([part.proposals[:, 0] for part in GOLDEN.tensors.values()]))  # type: ignore[index]
    rare = [int(token) for token in np.argsort(counts) if counts[token] >= 8][:swapped]

    def swap(tensors: dict[str, Tensor]) -> None:
        targets = tensors["d2t"] + torch.arange(len(tensors["d2t"]))
        rows = torch.tensor([int((targets == token).nonzero()[0, 0]) for token in rare])
        targets[rows] = targets[rows].roll(1)
        tensors["d2t"] = targets - torch.arange(len(targets))

    edit_tensors(file.parent / "draft" / "model.safetensors", swap)
    result = check(prepare(file))
    assert str(result.findings.stages.state) == "pass"
    assert str(result.findings.proposals.state) == "changed"
    assert result.attribution is not None
    assert result.attribution.stage == "vocabulary map"
