"""What a detector is given, and what it answers."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from harness.counts.run import PromptRecord, Run
from harness.golden.golden_class import GoldenClass
from harness.golden.schema import GoldenPrompt, Noise
from harness.golden.store import Golden
from harness.golden.tensors import GoldenTensors
from harness.pair.pair import Pair

__all__ = ["Context", "Finding", "Question", "State", "share_of"]


class Question(enum.Enum):
    """What chance can answer wrongly about a pair in which nothing has changed, in the whole verdict of a strict pair.

    The questions share the verdict's alpha equally (Bonferroni), so that it bounds the chance that any of them raises a
    false alarm. The other detectors compare with thresholds, which lie outside of alpha: contract, target, lossless,
    stages. A further test of a detector is a further question here.
    """

    PROPOSALS = "more windows changed than the bound of the noise explains"
    NOISE = "rounding changes more windows than the bound of what was measured"
    LESS_LIKELY = "the reference continuations are less likely"
    LIKELIER = "the reference continuations are likelier"
    DROP = "the acceptance rate has dropped"
    FLOOR = "the acceptance rate is below the floor"


def share_of(alpha: float, question: Question) -> float:
    """Return the chance of error that one question may have.

    Args:
        alpha: The chance of a false alarm of the whole verdict.
        question: One of those that share it.
    """
    return alpha / len(type(question))


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

    def share(self, question: Question) -> float:
        """Return the chance of error that a question may have, of the verdict's alpha."""
        return share_of(self.pair.settings.gate.alpha, question)

    @property
    def same_class(self) -> bool:
        """Whether the golden was recorded on the run's own engine, device class and dtype."""
        return self.golden.golden_class == GoldenClass.of_run(self.run)

    @property
    def noise(self) -> Noise | None:
        """What rounding alone changes in the run's dtype; `None` if the golden does not know it for that dtype."""
        return self.golden.document.noise.get(self.run.dtype)

    def coarser(self, tolerances: Mapping[str, float]) -> float:
        """Return the tolerance of the coarser dtype of golden and run, by a table of tolerances by dtype."""
        return max(tolerances[self.run.dtype], tolerances[self.golden.document.dtype])

    def pairs(self) -> Iterator[tuple[PromptRecord, GoldenPrompt, GoldenTensors]]:
        """Yield each record with its golden counts and tensors."""
        prompts = {prompt.id: prompt for prompt in self.golden.document.prompts}
        for record in self.run.records:
            yield record, prompts[record.id], self.golden.tensors[record.id]
