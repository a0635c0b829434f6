"""Measuring a pair: its rates, without a verdict."""

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

__all__ = ["SILENT", "Measurement", "looping", "measure", "require_finite"]

SILENT = Progress()


@dataclass(frozen=True)
class Measurement:
    """A pair's rates, without a verdict.

    Attributes:
        pair: The pair as it was run.
        run: The engine's records.
        seconds: Wall-clock time in seconds, loading included.
    """

    pair: Pair
    run: Run
    seconds: float

    @property
    def acceptance(self) -> Acceptance:
        """Acceptance over all prompts."""
        return acceptance_of(self.run)

    def by_category(self) -> dict[str, Acceptance]:
        """Return the acceptance of each category of prompts; empty if only sums over all are known."""
        if self.run.aggregate is not None:
            return {}
        categories = sorted({record.category for record in self.run.records})
        return {
            name: measure_acceptance(counts_of(record) for record in self.run.records if record.category == name)
            for name in categories
        }


# Share of repeated 8-grams above which a continuation counts as a loop.
_LOOP_LIMIT = 0.5


def looping(records: Sequence[PromptRecord]) -> list[str]:
    """Return the ids of prompts whose continuation is a loop, which inflates acceptance."""
    return [record.id for record in records if repeated_ngram_ratio(record.continuation) > _LOOP_LIMIT]


def measure(pair: Pair, *, prompts: str | None = None, progress: Progress = SILENT) -> Measurement:
    """Measure a pair's acceptance on text that it decodes itself.

    Args:
        pair: The pair, with the engine that measures it.
        prompts: `--prompts`: the first N, or ids separated by commas; `None` takes all.
        progress: Called as prompts are finished.

    Raises:
        HarnessError: The pair cannot be run as stated.
    """
    start = time.perf_counter()
    run = find_engine(pair.settings.engine.name).run(pair, load_prompts(pair, prompts), None, progress)
    require_finite(pair, run.records)
    return Measurement(pair, run, time.perf_counter() - start)


def require_finite(pair: Pair, records: Sequence[PromptRecord]) -> None:
    """Refuse NaN: its argmax always agrees, and acceptance would look perfect."""
    for record in records:
        if record.correct is None or record.logprobs is None:
            continue
        # Replay writes NaN outside the position set and minus infinity for whatever was computed and is not finite.
        if bool(np.isinf(record.logprobs).any()):
            raise InputError(
                "the pair computes values that are not finite",
                file=pair.file,
                key=f"prompt {record.id!r}",
                expected="finite log-probabilities",
                next_step='try engine.dtype = "float32"; float16 overflows first',
            )
