"""What a detector is given, and what it answers."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
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
    """What chance can answer wrongly. All together share the verdict's alpha, so that it holds for the whole verdict.

    A detector that asks a further question adds it here. The detectors of the target and of the stages ask none: they
    compare with fixed tolerances, which alpha does not cover.
    """

    PROPOSALS = "whether more windows changed than rounding changes"
    PROPOSALS_NOISE = "how many windows rounding changes at most"
    LIKELIHOOD_LOW = "whether the reference continuations became less likely"
    LIKELIHOOD_HIGH = "whether they became likelier"
    DROP = "whether the acceptance rate has dropped"
    FLOOR = "whether it is below the floor"


def share_of(alpha: float, question: Question) -> float:
    """Return the chance of error that a question may have: equal shares of the verdict's alpha (Bonferroni).

    Args:
        alpha: The chance of a false alarm of the whole verdict.
        question: The question; every one has the same share.
    """
    del question
    return alpha / len(Question)


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
        """Return the chance of error that a question may have."""
        return share_of(self.pair.settings.gate.alpha, question)

    @property
    def same_class(self) -> bool:
        """Whether the golden was recorded on the run's own engine, device class and dtype."""
        return self.golden.golden_class == GoldenClass.of_run(self.run)

    @property
    def noise(self) -> Noise | None:
        """What rounding alone changes in the run's dtype; `None` if the golden does not know it for that dtype."""
        return self.golden.document.noise.get(self.run.dtype)

    @property
    def noise_factor(self) -> float:
        """By how much the golden's noise is widened: √2 on another class of device, where no arm was measured.

        Rounding of golden and run is then of two kinds. If it is as large on either, and independent, the difference of
        two runs is √2 times as large as that of one run from the truth. That is an assumption.
        """
        run, golden = self.run.device.partition(":")[0], self.golden.document.device
        return math.sqrt(2) if run != golden else 1.0

    def pairs(self) -> Iterator[tuple[PromptRecord, GoldenPrompt, GoldenTensors]]:
        """Yield each record with its golden counts and tensors."""
        prompts = {prompt.id: prompt for prompt in self.golden.document.prompts}
        for record in self.run.records:
            yield record, prompts[record.id], self.golden.tensors[record.id]
