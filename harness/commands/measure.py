"""Measuring a pair: its acceptance rates, without a verdict."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.counts.acceptance import Acceptance, acceptance_of, counts_of, measure_acceptance, repeated_ngram_ratio
from harness.counts.run import PromptRecord, Run
from harness.engines.base import Progress
from harness.engines.registry import find_engine
from harness.errors import InputError
from harness.pair.pair import Pair, load_prompts

__all__ = ["LOOP_LIMIT", "SILENT", "Measurement", "looping", "measure", "require_finite"]

SILENT = Progress()


@dataclass(frozen=True)
class Measurement:
    """A pair and its measured run.

    Attributes:
        pair: The pair as it was run, with the command line's choices.
        run: The engine's records.
        seconds: Wall-clock time, loading included.
    """

    pair: Pair
    run: Run
    seconds: float

    @property
    def acceptance(self) -> Acceptance:
        """Acceptance over all prompts."""
        return acceptance_of(self.run)

    def by_category(self) -> dict[str, Acceptance]:
        """Return the acceptance of each category of prompts; empty if the engine knows only sums over all prompts."""
        if self.run.aggregate is not None:
            return {}
        categories = sorted({record.category for record in self.run.records})
        return {
            name: measure_acceptance(counts_of(record) for record in self.run.records if record.category == name)
            for name in categories
        }


LOOP_LIMIT = 0.5
"""The share of repeated 8-grams above which a continuation counts as a loop."""


def looping(records: Sequence[PromptRecord]) -> list[str]:
    """Return the ids of prompts whose continuation is a loop: loops are easy to draft, so they inflate acceptance."""
    return [record.id for record in records if repeated_ngram_ratio(record.continuation) > LOOP_LIMIT]


def measure(pair: Pair, *, prompts: str | None = None, progress: Progress = SILENT) -> Measurement:
    """Measure a pair's acceptance on continuations that its own target decodes.

    Args:
        pair: The pair to run, with its engine settings.
        prompts: The value of `--prompts`: the first N, or ids separated by commas; `None` means all.
        progress: Is called as the engine advances.

    Raises:
        HarnessError: The pair cannot be run as stated.
    """
    start = time.perf_counter()
    run = find_engine(pair.settings.engine.name).run(pair, load_prompts(pair, prompts), None, progress)
    require_finite(pair, run.records)
    return Measurement(pair, run, time.perf_counter() - start)


def require_finite(pair: Pair, records: Sequence[PromptRecord]) -> None:
    """Refuse NaN: the argmax of NaN logits is the same token everywhere, so acceptance would look perfect.

    Raises:
        InputError: A log-probability of the draft is not finite.
    """
    for record in records:
        if record.logprobs is None:
            continue
        # Engines write NaN outside the position set, and minus infinity for any computed value that is not finite.
        if bool(np.isinf(record.logprobs).any()):
            raise InputError(
                "the pair computes values that are not finite",
                file=pair.file,
                key=f"prompt {record.id!r}",
                expected="finite log-probabilities",
                next_step='try engine.dtype = "float32"; float16 overflows first',
            )
