"""The thresholds outside of alpha: how far rounding reaches, of the gap and of the sketches that they allow.

A golden is made in each dtype, in memory, and compared with runs in which nothing has changed but the rounding: prompts
one by one, another attention kernel, both. Two prompts of one pair in every test run, all of both in a nightly one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import hypothesis
import numpy as np
import pytest

from harness.commands.prepare import prepare
from harness.counts.run import Run
from harness.counts.ties import NEAR_TIE
from harness.detectors.base import Context
from harness.detectors.stages import compare_stages
from harness.detectors.stages import detect as detect_stages
from harness.detectors.target import detect as detect_target
from harness.engines.reference.greedy import greedy_continuations
from harness.engines.reference.loaded import LoadedPair, load
from harness.engines.reference.replay import replay
from harness.engines.shared.decoded import as_run
from harness.golden.find import find_golden
from harness.golden.golden_class import DEFAULT
from harness.golden.store import Golden, load_golden
from harness.golden.tensors import GoldenTensors
from harness.pair.pair import load_prompts
from harness.pair.prompts import Prompt

pytestmark = pytest.mark.slow

NIGHTLY = hypothesis.settings().max_examples > 100
PROMPTS = 96 if NIGHTLY else 2
ARMS = {"one by one": (1, "sdpa"), "eager attention": (None, "eager"), "both": (1, "eager")}


class _AA:
    """A golden of a dtype, and runs of the same pair with other rounding."""

    def __init__(self, name: str, dtype: str) -> None:
        self.pair = prepare(name, dtype=dtype)
        self.loaded: LoadedPair = load(self.pair)
        self.prompts: list[Prompt] = load_prompts(self.pair)[:PROMPTS]
        self.texts = greedy_continuations(self.loaded.target, [one.ids for one in self.prompts], self.loaded.limits)
        self.golden = self._golden(dtype)

    def run(self, max_rows: int | None = None, attention: str = "sdpa") -> Run:
        self.loaded.target.model.set_attn_implementation(attention)  # type: ignore[operator]
        records = replay(self.loaded, self.prompts, self.texts, max_rows=max_rows)
        return as_run(self.pair, records, "reference:replay", 0.0)

    def contexts(self) -> Iterator[tuple[str, Context]]:
        for name, (max_rows, attention) in ARMS.items():
            yield name, Context(self.pair, self.run(max_rows, attention), self.golden)

    def _golden(self, dtype: str) -> Golden:
        """Return what recording would keep of a run in this dtype, in the place of the built-in golden's."""
        builtin = load_golden(find_golden(self.pair, DEFAULT))
        chosen = {prompt.id for prompt in self.prompts}
        kept = [prompt for prompt in builtin.document.prompts if prompt.id in chosen]
        document = builtin.document.model_copy(update={"dtype": dtype, "prompts": kept})
        tensors = {
            record.id: GoldenTensors(
                np.asarray(record.continuation, np.int32),
                None if record.proposals is None else record.proposals.astype(np.int32),
                record.logprobs,
                record.sketches,
            )
            for record in self.run().records
        }
        return replace(builtin, document=document, tensors=tensors)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["tiny", "tiny-embedding"] if NIGHTLY else ["tiny"])
def test_rounding_stays_below_the_thresholds_of_target_and_stages(name: str, dtype: str) -> None:
    gaps, sketches, shares = [], [], []
    for arm, context in _AA(name, dtype).contexts():
        target, stages = detect_target(context), detect_stages(context)
        found = compare_stages(context)
        assert found is not None
        gaps.append(target.measured.greatest_gap)
        sketches.append(max(stage.typical for stage in found))
        shares.append(max(stage.share for stage in found))
        assert (str(target.state), str(stages.state)) == ("pass", "pass"), arm
    tolerance = stages.measured.tolerance
    print(  # noqa: T201
        f"\n{name} {dtype}, {PROMPTS} prompts, {', '.join(ARMS)}: greatest gap {max(gaps):.2g} of {NEAR_TIE[dtype]:g} "
        f"logits; greatest median difference of a stage {max(sketches):.2g} of {tolerance:g}, and at most "
        f"{max(shares):.2%} of its positions beyond it"
    )
    # Rounding there is: the comparison would see nothing in runs that repeat the golden's bit by bit.
    assert max(sketches) > 0
