"""Speed on the real pair, as ratios measured side by side in one run, with two threads at most."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import pytest
import torch

from fixtures.smollm2.recipe import BOUNDARIES
from fixtures.smollm2.texts import write_texts
from harness.commands.prepare import prepare
from harness.counts.run import PromptRecord
from harness.engines.reference.greedy import greedy_continuations
from harness.engines.reference.loaded import LoadedPair, load
from harness.engines.reference.replay import draft_on, replay, see
from harness.engines.reference.sequential import sequential
from suites.support.prompts import shortest
from suites.support.real_target import require_target

pytestmark = pytest.mark.bench
PROMPTS = 8
WRONG = BOUNDARIES["draft-embedding"]
_Result = TypeVar("_Result")


@pytest.fixture(scope="module")
def loaded() -> Iterator[LoadedPair]:
    require_target()
    before = torch.get_num_threads()
    torch.set_num_threads(min(2, os.cpu_count() or 1))
    yield load(prepare("smollm2"))
    torch.set_num_threads(before)


def _timed(run: Callable[[], _Result]) -> tuple[_Result, float]:
    start = time.perf_counter()
    result = run()
    return result, time.perf_counter() - start


def _best(run: Callable[[], _Result], repeats: int) -> tuple[_Result, float]:
    results = [_timed(run) for _ in range(repeats)]
    return results[0][0], min(seconds for _, seconds in results)


# Half of the figures in docs/real-model.md, or less: how much slower a round is than its share of a batch depends on
# the machine's memory relative to its arithmetic.
@pytest.mark.parametrize(("file", "bar", "tries"), [("unseen.jsonl", 13, 90), ("prompts.jsonl", 5, 50)])
def test_replay_against_every_other_way(loaded: LoadedPair, file: str, bar: float, tries: float) -> None:
    """Batched replay against the decoder run one prompt at a time, with equal rounds; also with a wrong wiring.

    The number of rounds decides. On the pair's own prompts nine tokens of ten are accepted, which leaves the decoder
    few rounds; with a wrong wiring few tokens are accepted on any prompts.
    """
    pair = replace(loaded.pair, prompts_file=loaded.pair.prompts_file.with_name(file))
    prompts = shortest(pair, PROMPTS)
    target, draft, limits, right = loaded.target, loaded.draft, loaded.limits, pair.boundaries
    texts, plain = _timed(lambda: [greedy_continuations(target, [prompt.ids], limits)[0] for prompt in prompts])
    written, together = _timed(lambda: write_texts(target, prompts, limits, lambda _: None))
    replayed, replayed_in = _best(lambda: replay(loaded, prompts, texts), 3)
    decoded, one_by_one = _timed(lambda: sequential(loaded, prompts))
    seen = list(see(target, (*right, *WRONG), prompts, texts, limits))
    tried, hypothesis = _best(lambda: [one for batch in seen for one in draft_on(draft, batch, WRONG, limits)], 5)
    misled, misled_one_by_one = _timed(lambda: sequential(replace(loaded, boundaries=WRONG), prompts))
    for line in (
        f"{file}: {len(prompts)} prompts, {sum(map(len, texts))} tokens; batched replay took {replayed_in:.2f} s",
        f"  sequential, {_rounds(decoded)} rounds: {one_by_one / replayed_in:.1f} x batched replay",
        f"  plain greedy, one prompt at a time: {plain / replayed_in:.1f} x",
        f"  plain greedy in batches, by transformers: {together / replayed_in:.1f} x",
        f"  one more hypothesis: {hypothesis / replayed_in:.3f} x, 1/{one_by_one / hypothesis:.0f} of sequential",
        f"  sequential with it, {_rounds(misled)} rounds: {misled_one_by_one / replayed_in:.1f} x, "
        f"{misled_one_by_one / hypothesis:.0f} hypotheses",
    ):
        print(f"\n{line}", end="")  # noqa: T201
    assert [one.text for one in written] == texts
    assert {one.id: one.rounds for one in replayed} == {one.id: one.rounds for one in decoded}
    assert {one.id: one.rounds for one in tried} == {one.id: one.rounds for one in misled}
    assert one_by_one / replayed_in >= bar
    assert misled_one_by_one / hypothesis >= tries


def _rounds(records: list[PromptRecord]) -> int:
    return sum(len(record.rounds or ()) for record in records)
