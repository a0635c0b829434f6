"""What a detector gets and gives."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.counts.run import PromptRecord, Run
from harness.golden.golden_class import GoldenClass
from harness.golden.schema import GoldenPrompt, Noise
from harness.golden.store import Golden
from harness.golden.tensors import GoldenTensors
from harness.pair.pair import Pair

__all__ = ["QUESTIONS", "Context", "Finding", "State"]

# Questions that chance can answer wrongly: changed proposals, likelihood, the drop, the floor. The verdict's alpha is
# shared among them (Bonferroni), so that it holds for the verdict as a whole.
QUESTIONS = 4


class State(enum.StrEnum):
    """What a detector found."""

    REGRESSION = "regression"
    CHANGED = "changed"
    NOT_MEASURED = "not_measured"
    INCONCLUSIVE = "inconclusive"
    PASS = "pass"
    NOT_APPLICABLE = "not_applicable"


@dataclass(frozen=True)
class Finding:
    """A detector's answer.

    Attributes:
        state: What it found.
        message: One sentence for a person.
        figures: The numbers behind it, ready for JSON.
        notes: What is worth telling and decides nothing.
    """

    state: State
    message: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the object printed by `--json`."""
        return {"verdict": str(self.state), "message": self.message, **self.figures} | (
            {"notes": list(self.notes)} if self.notes else {}
        )


@dataclass(frozen=True)
class Context:
    """A run beside the golden it is compared with.

    Attributes:
        pair: The pair.
        run: What the engine returned.
        golden: The golden.
    """

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
        """What rounding alone changes in the run's dtype."""
        return self.golden.document.noise.get(self.run.dtype)

    def pairs(self) -> Iterator[tuple[PromptRecord, GoldenPrompt, GoldenTensors]]:
        """Yield each record with its golden counts and tensors."""
        prompts = {prompt.id: prompt for prompt in self.golden.document.prompts}
        for record in self.run.records:
            yield record, prompts[record.id], self.golden.tensors[record.id]
