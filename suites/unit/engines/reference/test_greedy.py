"""Greedy decoding in batches by memory: the texts of one prompt at a time, and smaller batches if memory runs out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from harness.commands.prepare import prepare
from harness.counts.rounds import Limits
from harness.engines.reference import greedy
from harness.engines.reference.greedy import greedy_continuations
from harness.engines.reference.loaded import LoadedPair, load
from harness.engines.reference.memory import batch_tokens, is_out_of_memory
from harness.pair.pair import load_prompts
from suites.support.random_pair import write_pair


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedPair:
    return load(prepare(write_pair(tmp_path, eos=5), dtype="float64"))


def _prompts(loaded: LoadedPair) -> list[tuple[int, ...]]:
    return [prompt.ids for prompt in load_prompts(loaded.pair)]


def test_prompts_of_every_length_together_are_those_alone(loaded: LoadedPair) -> None:
    prompts = _prompts(loaded)
    assert min(map(len, prompts)) == 1
    limits = Limits(20, 4, (5,))
    together = greedy_continuations(loaded.target, prompts, limits)
    assert together == [greedy_continuations(loaded.target, [prompt], limits)[0] for prompt in prompts]
    # Some end within the limit, and some do not.
    assert len({limits.ended(text) for text in together}) == 2


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
    ],
    ids=["cuda", "python", "cpu", "windows"],
)
def test_a_batch_that_does_not_fit_is_halved_and_it_is_told(
    loaded: LoadedPair, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The allocator's failure is FAKE: no test should fill the machine's memory."""
    prompts, limits = _prompts(loaded), Limits(12, 4, ())
    expected = greedy_continuations(loaded.target, prompts, limits)
    decode = greedy._decode_slots
    sizes: list[int] = []
    notes: list[str] = []
    rows: list[int] = []

    def small(target: Any, batch: Any, given: Limits) -> Any:
        sizes.append(len(batch))
        if len(batch) > 2:
            raise error
        return decode(target, batch, given)

    monkeypatch.setattr(greedy, "_decode_slots", small)
    found = greedy_continuations(
        loaded.target, prompts, limits, found=lambda row, _text: rows.append(row), told=notes.append
    )
    assert found == expected
    assert sizes == [6, 3, 1, 2, 3, 1, 2]
    assert sorted(rows) == list(range(6))
    assert notes[0] == "6 prompts at once did not fit in memory: decoded in halves"


def test_other_errors_and_a_single_prompt_are_not_tried_again(
    loaded: LoadedPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error, prompts in ((RuntimeError("shapes differ"), _prompts(loaded)), (MemoryError(), _prompts(loaded)[:1])):
        calls: list[int] = []

        def broken(*_arguments: Any, error: Exception = error, calls: list[int] = calls) -> Any:
            calls.append(1)
            raise error

        monkeypatch.setattr(greedy, "_decode_slots", broken)
        with pytest.raises(type(error)):
            greedy_continuations(loaded.target, prompts, Limits(12, 4, ()))
        assert len(calls) == 1


def test_a_batch_is_bounded_by_the_memory_that_is_free(loaded: LoadedPair, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {}
    for free in (1 << 20, 1 << 30, 1 << 33):
        monkeypatch.setattr("harness.engines.reference.memory._free", lambda _device, free=free: free)
        sizes[free] = batch_tokens(loaded.target)
    assert sizes[1 << 20] == 1024
    assert sizes[1 << 33] == pytest.approx(8 * sizes[1 << 30], rel=0.01)
    assert not is_out_of_memory(RuntimeError("shapes differ"))
