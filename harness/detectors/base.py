"""What a detector is given, and what it answers."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from harness.counts.run import PromptRecord, Run
from harness.golden.golden_class import GoldenClass
from harness.golden.schema import GoldenPrompt, Noise
from harness.golden.store import Golden
from harness.golden.tensors import GoldenTensors
from harness.pair.pair import Pair

__all__ = ["QUESTIONS", "Context", "Finding", "State"]

# Questions that chance can answer wrongly: changed proposals, likelihood, the drop, the floor. They share the verdict's
# alpha (Bonferroni), so that it holds for the verdict as a whole. The other detectors compare with fixed tolerances.
QUESTIONS = 4


class State(enum.StrEnum):
    """What a detector found, worst first if the pair is strict."""

    REGRESSION = "regression"
    CHANGED = "changed"
    NOT_MEASURED = "not_measured"
    INCONCLUSIVE = "inconclusive"
    PASS = "pass"
    NOT_APPLICABLE = "not_applicable"


# A detector's own figures: a frozen dataclass next to it.
FiguresT_co = TypeVar("FiguresT_co", covariant=True)


@dataclass(frozen=True)
class Finding(Generic[FiguresT_co]):
    """A detector's answer.

    Attributes:
        state: What it found.
        message: One sentence for a person.
        figures: The numbers behind it; `None` if it had nothing to measure.
        notes: Remarks that decide nothing.
    """

    state: State
    message: str
    figures: FiguresT_co | None = None
    notes: tuple[str, ...] = ()

    @property
    def measured(self) -> FiguresT_co:
        """The figures, of a detector that is known to have measured.

        Raises:
            ValueError: It had nothing to measure.
        """
        if self.figures is None:
            raise ValueError(self.message)
        return self.figures


@dataclass(frozen=True)
class Context:
    """A run next to the golden that it is compared with."""

    pair: Pair
    run: Run
    golden: Golden

    @property
    def alpha(self) -> float:
        """The chance of error that each question may have."""
        return self.pair.settings.gate.alpha / QUESTIONS

    @property
    def same_class(self) -> bool:
        """Whether the golden was recorded on the run's own engine, device class and dtype."""
        return self.golden.golden_class == GoldenClass.of_run(self.run)

    @property
    def noise(self) -> Noise | None:
        """What rounding alone changes in the run's dtype; `None` if the golden does not know it for that dtype."""
        return self.golden.document.noise.get(self.run.dtype)

    def pairs(self) -> Iterator[tuple[PromptRecord, GoldenPrompt, GoldenTensors]]:
        """Yield each record with its golden counts and tensors."""
        prompts = {prompt.id: prompt for prompt in self.golden.document.prompts}
        for record in self.run.records:
            yield record, prompts[record.id], self.golden.tensors[record.id]
