"""Speed, as ratios measured side by side in one run, with one thread."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from transformers.cache_utils import DynamicCache

from harness.commands.prepare import prepare
from harness.counts.rounds import Limits
from harness.counts.run import PromptRecord
from harness.engines.reference.batched import batched
from harness.engines.reference.batches import TOKENS
from harness.engines.reference.draft_cache import DraftCache
from harness.engines.reference.greedy import greedy_continuations
from harness.engines.reference.loaded import LoadedPair, load
from harness.engines.reference.replay import replay
from harness.engines.reference.sequential import sequential
from harness.pair.pair import load_prompts
from harness.pair.prompts import Prompt

pytestmark = pytest.mark.bench
SHORT = 64


@pytest.fixture(scope="module")
def loaded() -> Iterator[LoadedPair]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield load(prepare("tiny"))
    torch.set_num_threads(before)


def _seconds(run: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def test_replay_against_sequential_decoding(loaded: LoadedPair, benchmark: Any) -> None:
    """Batched replay is at least 7 times as fast as the decoder run one prompt at a time, with identical counts.

    Asserted on prompts shorter than their continuation, since the prefill of a long prompt costs both the same and
    hides the ratio; that of all prompts is reported as well.
    """
    every = load_prompts(loaded.pair)
    prompts = [prompt for prompt in every if len(prompt.ids) <= SHORT]
    texts = _texts(loaded, prompts)

    start = time.perf_counter()
    decoded = sequential(loaded, prompts)
    one_by_one = time.perf_counter() - start
    start = time.perf_counter()
    together = batched(loaded, prompts)
    all_together = time.perf_counter() - start
    replayed: list[PromptRecord] = benchmark.pedantic(replay, args=(loaded, prompts, texts), rounds=7, warmup_rounds=1)
    replayed_in = benchmark.stats.stats.median
    benchmark.extra_info["sequential / replay"] = round(one_by_one / replayed_in, 1)
    benchmark.extra_info["batched sequential / replay"] = round(all_together / replayed_in, 1)
    of_all = _ratio_of_all(loaded, every)
    benchmark.extra_info["sequential / replay, prompts of any length"] = round(of_all, 1)
    print(  # noqa: T201
        f"\nsequential / replay: {one_by_one / replayed_in:.1f} ({of_all:.1f} on prompts of any length), "
        f"batched / replay: {all_together / replayed_in:.1f}"
    )
    histograms = [[record.histogram for record in records] for records in (decoded, together, replayed)]
    assert histograms[0] == histograms[1] == histograms[2]
    assert one_by_one / replayed_in >= 7


def _ratio_of_all(loaded: LoadedPair, prompts: list[Prompt]) -> float:
    texts = _texts(loaded, prompts)
    start = time.perf_counter()
    sequential(loaded, prompts)
    one_by_one = time.perf_counter() - start
    return one_by_one / _seconds(lambda: replay(loaded, prompts, texts), 3)


def _texts(loaded: LoadedPair, prompts: list[Prompt]) -> list[tuple[int, ...]]:
    return greedy_continuations(loaded.target, [prompt.ids for prompt in prompts], loaded.limits)


def test_a_sequential_round_is_no_straw_man(loaded: LoadedPair) -> None:
    """A round takes at most 1.5 times as long as it must: a cached target forward over k+1 tokens and k draft steps."""
    prompts = load_prompts(loaded.pair, "12")
    k = loaded.limits.num_steps
    sequential(loaded, prompts)
    ratios = []
    for _ in range(5):
        start = time.perf_counter()
        records = sequential(loaded, prompts)
        rounds = sum(len(record.rounds or ()) + (record.eos_round is not None) for record in records)
        a_round = (time.perf_counter() - start) / rounds
        ratios.append(a_round / _bare_round(loaded, prompts[0].ids, k))
    print(f"\na round / its parts: {statistics.median(ratios):.2f}")  # noqa: T201
    assert statistics.median(ratios) <= 1.5


@torch.inference_mode()
def _bare_round(loaded: LoadedPair, prompt: tuple[int, ...], k: int) -> float:
    """Return the seconds of a cached target forward over k+1 tokens plus k cached draft steps."""
    target, draft = loaded.target, loaded.draft
    ids = torch.tensor([prompt])
    cache = DynamicCache(config=target.config)
    target.forward(ids, cache=cache)
    chunk = ids[:, : k + 1]

    def forward() -> None:
        target.forward(chunk, cache=cache)
        cache.crop(-chunk.shape[1])

    draft_cache = DraftCache(draft, 1, ids.shape[1] + k + 1)
    states = torch.zeros(1, ids.shape[1], draft.fc.in_features)
    draft_cache.run(ids, draft.fuse(states), 0)
    g = torch.randn(1, 1, draft.spec.hidden_size)

    def step() -> None:
        draft.to_target(draft.logits(draft_cache.run(chunk[:, :1], g, ids.shape[1])).argmax(-1))

    return _seconds(forward, 60) + k * _seconds(step, 60)


@pytest.mark.parametrize("arguments", [["-c", "import harness"], ["-m", "harness", "--help"]], ids=["import", "help"])
def test_start_up_is_light(arguments: list[str]) -> None:
    """Neither `import harness` nor `--help` takes half a second, since neither imports torch."""
    start = time.perf_counter()
    bare = subprocess.run([sys.executable, "-c", "pass"], check=True)
    interpreter = time.perf_counter() - start
    assert bare.returncode == 0
    times = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    print(f"\n{' '.join(arguments)}: {min(times):.2f} s, of which the interpreter {interpreter:.2f} s")  # noqa: T201
    assert min(times) < 0.5


def test_start_up_imports_no_torch() -> None:
    code = (
        "import sys, harness.cli.app as app\n"
        "app.main(['--help'])\n"
        "assert not {'torch', 'transformers', 'scipy'} & set(sys.modules), 'heavy import'\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_greedy_decoding_in_batches_by_memory(loaded: LoadedPair) -> None:
    """256 prompts of 256 tokens: at least 5 times as fast as in batches of 1,024 tokens, which held 3 of them.

    The small batches are timed on every sixteenth prompt, and that time is multiplied.
    """
    prompts = [prompt.ids[:64] for prompt in load_prompts(loaded.pair)]
    many = [prompts[index % len(prompts)] for index in range(256)]
    limits = Limits(256, loaded.limits.num_steps, ())
    start = time.perf_counter()
    together = greedy_continuations(loaded.target, many, limits)
    large = time.perf_counter() - start
    start = time.perf_counter()
    few = greedy_continuations(loaded.target, many[::16], limits, tokens=TOKENS)
    small = 16 * (time.perf_counter() - start)
    print(f"\ngreedy decoding by memory: {small / large:.1f} times as fast")  # noqa: T201
    assert few == together[::16]
    assert small / large >= 5
