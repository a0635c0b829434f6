"""Speed on the real pair, as ratios taken side by side in one run, with one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
import torch

from fixtures.smollm2.texts import write_texts
from harness.check import prepare
from harness.engines.base import Progress
from harness.engines.reference.engine import shifted
from harness.engines.reference.greedy import greedy_texts
from harness.engines.reference.loaded import LoadedPair, load
from harness.engines.reference.replay import draft_on, see
from harness.engines.reference.sequential import sequential
from harness.pair.pair import load_prompts
from suites.real_target import require_target

pytestmark = pytest.mark.bench
PROMPTS, LONGEST = 8, 80
_Result = TypeVar("_Result")


@pytest.fixture(scope="module")
def loaded() -> Iterator[LoadedPair]:
    require_target()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield load(prepare("smollm2"))
    torch.set_num_threads(before)


def _timed(run: Callable[[], _Result]) -> tuple[_Result, float]:
    start = time.perf_counter()
    result = run()
    return result, time.perf_counter() - start


def _best(run: Callable[[], _Result], repeats: int) -> tuple[_Result, float]:
    results = [_timed(run) for _ in range(repeats)]
    return results[0][0], min(seconds for _, seconds in results)


def test_replay_against_every_other_way(loaded: LoadedPair) -> None:
    """Replay takes at most a third of the sequential decoder's time, one more hypothesis 1/30; the rounds are equal.

    So little since the draft accepts nine tokens of ten, which leaves the decoder few rounds.
    """
    prompts = [prompt for prompt in load_prompts(loaded.pair) if len(prompt.ids) <= LONGEST][:PROMPTS]
    target, draft, limits, boundaries = loaded.target, loaded.draft, loaded.limits, loaded.pair.boundaries
    texts, plain = _timed(lambda: [greedy_texts(target, [prompt.ids], limits, lambda _: None)[0] for prompt in prompts])
    written, together = _timed(lambda: write_texts(target, prompts, limits, lambda _: None))
    decoded, one_by_one = _timed(lambda: sequential(target, draft, boundaries, prompts, limits))
    replayed, replay = _best(lambda: loaded.replay(prompts, texts, Progress()), 3)
    wrong = shifted(loaded.pair)
    seen = list(see(target, (*boundaries, *wrong), prompts, texts, limits))
    _, hypothesis = _best(lambda: [draft_on(draft, batch, wrong, limits) for batch in seen], 5)
    rounds = [record.rounds for record in decoded]
    print(  # noqa: T201
        f"\n{len(prompts)} prompts, {sum(map(len, texts))} tokens, {sum(len(row or ()) for row in rounds)} rounds; "
        f"batched replay {replay:.2f} s. In units of it: sequential {one_by_one / replay:.1f}, plain greedy "
        f"{plain / replay:.1f}, plain greedy in batches by transformers {together / replay:.1f}, "
        f"one more hypothesis {hypothesis / replay:.3f} (1/{one_by_one / hypothesis:.0f} of sequential)"
    )
    assert [one.text for one in written] == texts
    assert rounds == [record.rounds for record in replayed]
    assert one_by_one / replay >= 3
    assert one_by_one / hypothesis >= 30
