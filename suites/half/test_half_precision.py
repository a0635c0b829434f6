"""Goldens recorded in half precision: every single wrong id is red, and rounding that was held out of the noise is not.

The built-in pairs are replayed once for each wiring and each arm, and subsets of the prompts are judged afterwards. On
a CPU half precision takes several times as long as float32: `python -m tox -e half`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from harness.commands.prepare import prepare
from harness.commands.record import record
from harness.counts.run import PromptRecord, Run
from harness.detectors import Context, State, run_detectors
from harness.detectors.gate import exit_code, verdict
from harness.engines.reference.loaded import LoadedPair, load
from harness.engines.reference.noise import jittered
from harness.engines.reference.replay import DraftInput, replay, replay_all
from harness.engines.reference.threads import suitable_threads
from harness.engines.shared.decoded import as_run
from harness.golden.schema import Noise, NoiseArm
from harness.golden.store import Golden, load_golden
from harness.models.streamed import other_attention
from harness.pair.pair import Pair, load_prompts
from harness.pair.prompts import Prompt
from suites.support.builtin_pairs import copy_pair

pytestmark = pytest.mark.slow

SUBSETS, SIZE, A_A = 200, 24, 1000
MOST_ALARMS = 5


@dataclass(frozen=True)
class _Measured:
    """A golden of half precision with every run that is judged by it.

    Attributes:
        pair: The pair.
        golden: Its golden, recorded in the dtype.
        wrong: A run for each single wrong boundary, by the boundaries.
        arms: A run for each arm of its noise that rounds within the dtype, in the golden's order.
    """

    pair: Pair
    golden: Golden
    wrong: dict[tuple[int, ...], Run]
    arms: list[Run]


def _single_faults(wiring: Sequence[int], layers: int) -> list[tuple[int, ...]]:
    return [
        (*wiring[:slot], other, *wiring[slot + 1 :])
        for slot, boundary in enumerate(wiring)
        for other in range(layers + 1)
        if other != boundary
    ]


@pytest.fixture(scope="module", params=[("tiny", "bfloat16"), ("tiny", "float16"), ("tiny-embedding", "bfloat16")])
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> _Measured:
    name, dtype = request.param
    folder: Path = tmp_path_factory.mktemp(f"{name}-{dtype}")
    file = copy_pair(folder, name)
    file.write_text(f'golden = "golden"\n{file.read_text()}')
    pair = prepare(file, dtype=dtype)
    golden = record(pair).golden
    prompts = load_prompts(pair)
    texts = [golden.continuation(prompt.id) for prompt in prompts]
    with suitable_threads(pair):
        loaded = load(pair)
        wirings = _single_faults(pair.boundaries, pair.target.num_layers)
        inputs = [*map(DraftInput, wirings), *jittered(pair.boundaries)]
        found = replay_all(loaded, inputs, prompts, texts)
        arms = [*found[len(wirings) :], *_within(loaded, prompts, texts)]
    runs = [as_run(pair, records, "reference:replay", 0.0) for records in (*found[: len(wirings)], *arms)]
    return _Measured(pair, load_golden(golden.file), dict(zip(wirings, runs, strict=False)), runs[len(wirings) :])


def _within(
    loaded: LoadedPair, prompts: Sequence[Prompt], texts: Sequence[tuple[int, ...]]
) -> Iterator[list[PromptRecord]]:
    yield replay(loaded, prompts, texts, max_rows=1)
    with other_attention(loaded.target.model) as kernel:
        assert kernel is not None
        yield replay(loaded, prompts, texts)


def _subset(run: Run, generator: np.random.Generator) -> Run:
    chosen = generator.choice(len(run.records), SIZE, replace=False)
    return replace(run, records=tuple(run.records[row] for row in chosen))


def test_every_single_wrong_boundary_is_red(measured: _Measured) -> None:
    generator = np.random.default_rng(5)
    seen = {}
    for boundaries, run in measured.wrong.items():
        red = 0
        for _ in range(SUBSETS):
            findings = run_detectors(Context(measured.pair, _subset(run, generator), measured.golden))
            red += exit_code([finding.state for finding in findings.values()], strict=True) == 1
        seen[boundaries] = red
    least = min(seen, key=lambda boundaries: seen[boundaries])
    print(f"\n{len(seen)} single wrong ids, each on {SUBSETS} subsets: least {seen[least]}, {least}")  # noqa: T201
    assert all(red >= 0.99 * SUBSETS for red in seen.values()), seen


def test_an_arm_that_was_held_out_of_the_noise_is_no_alarm(measured: _Measured) -> None:
    """The golden's noise is that of all other arms: a run that rounds in a way that was not measured."""
    dtype = measured.golden.document.dtype
    recorded = measured.golden.document.noise[dtype].arms
    generator = np.random.default_rng(11)
    states: Counter[State] = Counter()
    for index in range(A_A):
        held_out = index % len(measured.arms)
        golden = _without(measured.golden, dtype, recorded[:held_out] + recorded[held_out + 1 :])
        run = _subset(measured.arms[held_out], generator)
        findings = run_detectors(Context(measured.pair, run, golden))
        states[verdict(finding.state for finding in findings.values())] += 1
    print(f"\n{A_A} subsets of held-out arms: { ({str(state): count for state, count in states.items()}) }")  # noqa: T201
    assert states[State.REGRESSION] + states[State.CHANGED] <= MOST_ALARMS, states


def _without(golden: Golden, dtype: str, arms: list[NoiseArm]) -> Golden:
    noise = golden.document.noise | {dtype: Noise(arms=arms)}
    return replace(golden, document=golden.document.model_copy(update={"noise": noise}))
