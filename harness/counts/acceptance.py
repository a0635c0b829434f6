"""Counts to rates: every definition of acceptance, once.

With `accepted` of `proposed` tokens in each verify round, and one bonus token a round:

- acceptance rate = sum(accepted) / sum(proposed): a ratio of sums, never a mean of ratios;
- acceptance length = 1 + sum(accepted) / rounds: the bonus included;
- unconditional position rate u_i = rounds with accepted > i / rounds, i from 0, so sum(u_i) = length - 1;
- conditional position rate c_i = u_i / u_(i-1), c_0 = u_0;
- step accuracy t_i = share of all positions at which the draft's teacher-forced argmax of step i is the text's token.

None of them includes the round that ends in EOS. A figure that was not measured is `None`, never 0 or 1. Each figure is
a ratio of sums over prompts, with the standard error of such a ratio; the prompts are its clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.counts.run import PromptRecord, Run
from harness.counts.statistics import ratio

__all__ = [
    "Acceptance",
    "Figure",
    "PromptCounts",
    "acceptance_of",
    "broken_counts",
    "columns",
    "counts_of",
    "figures",
    "greatest",
    "measure_acceptance",
    "repeated_ngram_ratio",
    "run_columns",
]


@dataclass(frozen=True)
class PromptCounts:
    """One prompt's counts, the sufficient statistic of every rate.

    Attributes:
        id: The prompt's id.
        histogram: Rounds by accepted count, k+1 entries.
        correct: Positions at which the teacher-forced draft is right, for each step; `None` if the engine does not know
            them.
        evaluated: Positions at which the draft was asked, for each step.
        again: The histograms of further runs of the same prompt, by an engine that may differ from itself.
    """

    id: str
    histogram: tuple[int, ...]
    correct: tuple[int, ...] | None = None
    evaluated: tuple[int, ...] | None = None
    again: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def of(
        cls, name: str, histogram: Sequence[int], correct: Sequence[int] | None, evaluated: Sequence[int] | None
    ) -> PromptCounts:
        """Return the counts that a file has as lists."""
        return cls(
            name,
            tuple(histogram),
            None if correct is None else tuple(correct),
            None if evaluated is None else tuple(evaluated),
        )

    @property
    def runs(self) -> tuple[PromptCounts, ...]:
        """The counts of each run, the first included."""
        return (self, *(PromptCounts(self.id, histogram) for histogram in self.again))

    @property
    def rounds(self) -> int:
        """Verify rounds."""
        return sum(self.histogram)

    @property
    def accepted(self) -> int:
        """Draft tokens accepted, without bonus tokens."""
        return sum(count * accepted for accepted, count in enumerate(self.histogram))

    @property
    def proposed(self) -> int:
        """Draft tokens proposed."""
        return self.rounds * (len(self.histogram) - 1)


Figure = Callable[[PromptCounts], tuple[int, int]]


def figures(k: int) -> dict[str, Figure]:
    """Return, by name, what every figure adds up for one prompt: its numerator and its denominator.

    `rate`; `length`, without the bonus token; the position rates `u0`, `u1` … and `c0`, `c1` …; the step accuracies
    `t0`, `t1` …
    """

    # Sums and not ratios: a prompt with more rounds weighs more, and one without any weighs nothing instead of 0/0.
    def reached(step: int) -> Figure:
        return lambda counts: (sum(counts.histogram[step + 1 :]), counts.rounds)

    def conditional(step: int) -> Figure:
        return lambda counts: (sum(counts.histogram[step + 1 :]), sum(counts.histogram[step:]))

    def accurate(step: int) -> Figure:
        return lambda counts: (
            (counts.correct[step], counts.evaluated[step]) if counts.correct and counts.evaluated else (0, 0)
        )

    return {
        "rate": lambda counts: (counts.accepted, counts.proposed),
        # The bonus token is the same for every prompt: added to the ratio afterwards, it does not touch its error.
        "length": lambda counts: (counts.accepted, counts.rounds),
        **{f"u{step}": reached(step) for step in range(k)},
        **{f"c{step}": conditional(step) for step in range(k)},
        **{f"t{step}": accurate(step) for step in range(k)},
    }


def columns(counts: Iterable[PromptCounts], figure: Figure) -> tuple[list[int], list[int]]:
    """Return a figure's numerators and denominators over prompts."""
    rows = [figure(prompt) for prompt in counts]
    return [part for part, _ in rows], [whole for _, whole in rows]


def greatest(name: str, k: int) -> int:
    """Return the greatest value that a figure's ratio can have: accepted tokens a round, else a share."""
    return k if name == "length" else 1


def run_columns(counts: Iterable[PromptCounts], figure: Figure) -> list[tuple[list[int], list[int]]]:
    """Return a figure's columns of each run, for prompts that were measured several times."""
    runs = list(zip(*(prompt.runs for prompt in counts), strict=True))
    return [columns(run, figure) for run in runs] or [([], [])]


@dataclass(frozen=True)
class Acceptance:
    """Acceptance over a set of prompts.

    Attributes:
        rate: Acceptance rate, 0 to 1.
        length: Acceptance length in tokens a round, bonus token included, 1 to k+1.
        unconditional: u_i, k entries.
        conditional: c_i, k entries.
        step_accuracy: t_i, k entries; empty if the engine does not know it.
        rounds: Verify rounds.
        accepted: Draft tokens accepted.
        proposed: Draft tokens proposed.
        prompts: Number of prompts measured, those without a round included.
        errors: Standard errors by figure (`rate`, `length`, `u0`, `c0`, `t0` …), clustered by prompt; `None` if nothing
            was measured, or on one prompt only.
    """

    rate: float | None
    length: float | None
    unconditional: tuple[float | None, ...]
    conditional: tuple[float | None, ...]
    step_accuracy: tuple[float | None, ...]
    rounds: int
    accepted: int
    proposed: int
    prompts: int
    errors: Mapping[str, float | None] = field(default_factory=dict)


def counts_of(record: PromptRecord) -> PromptCounts:
    """Return a record's counts."""
    correct = evaluated = None
    if record.correct is not None:
        # -1 marks steps past the end of the text: those were not asked.
        correct = tuple(int(value) for value in (record.correct == 1).sum(axis=0))
        evaluated = tuple(int(value) for value in (record.correct >= 0).sum(axis=0))
    return PromptCounts(record.id, record.histogram, correct, evaluated)


def broken_counts(counts: PromptCounts, names: tuple[str, str] = ("correct", "evaluated")) -> str | None:
    """Return the contradiction in one prompt's counts, `None` if they agree.

    Args:
        counts: One prompt's counts, as a file has them.
        names: The words of that file for `correct` and `evaluated`.
    """
    if counts.correct is None and counts.evaluated is None:
        return None
    steps = len(counts.histogram) - 1
    for name, values in zip(names, (counts.correct, counts.evaluated), strict=True):
        if values is None or len(values) != steps:
            return f"{len(values or ())} entries in {name}, not {steps}"
    for correct, evaluated in zip(counts.correct or (), counts.evaluated or (), strict=True):
        if correct > evaluated:
            return f"{correct} {names[0]} of {evaluated} {names[1]}"
    return None


def measure_acceptance(counts: Iterable[PromptCounts]) -> Acceptance:
    """Return the acceptance over prompts.

    Raises:
        ValueError: The prompts' chains have different lengths, or a rate leaves 0 … 1.
    """
    prompts = list(counts)
    steps = {len(prompt.histogram) - 1 for prompt in prompts}
    if len(steps) > 1:
        raise ValueError(f"chains of different lengths cannot be summed: {sorted(steps)}")
    k = steps.pop() if steps else 0
    ratios = {name: ratio(*columns(prompts, figure)) for name, figure in figures(k).items()}
    values = {name: None if value is None else value.estimate for name, value in ratios.items()}
    # Counts that a file or a server made up can give shares above 1. Failing here is better than judging them.
    for name, value in values.items():
        if name != "length" and value is not None and not 0 <= value <= 1:
            raise ValueError(f"{name} is {value}, which is not a share")

    def by_step(letter: str) -> tuple[float | None, ...]:
        return tuple(values[f"{letter}{step}"] for step in range(k))

    return Acceptance(
        rate=values["rate"],
        length=None if values["length"] is None else 1 + values["length"],
        unconditional=by_step("u"),
        conditional=by_step("c"),
        step_accuracy=by_step("t") if any(prompt.correct and prompt.evaluated for prompt in prompts) else (),
        rounds=sum(prompt.rounds for prompt in prompts),
        accepted=sum(prompt.accepted for prompt in prompts),
        proposed=sum(prompt.proposed for prompt in prompts),
        prompts=len(prompts),
        errors={name: None if value is None else value.standard_error for name, value in ratios.items()},
    )


def acceptance_of(run: Run) -> Acceptance:
    """Return the acceptance over a run's prompts: from their own counts, or from sums if the engine knows only those.

    Sums do not have a standard error: they do not show how far prompts differ.
    """
    if run.aggregate is None:
        return measure_acceptance(counts_of(record) for record in run.records)
    # One prompt in place of all: the ratios are the same.
    whole = measure_acceptance([PromptCounts("", run.aggregate)])
    return replace(whole, prompts=len(run.records), errors=dict.fromkeys(whole.errors))


def repeated_ngram_ratio(ids: Sequence[int], width: int = 8) -> float:
    """Return the share of a text's n-grams of `width` tokens that have occurred in it before: near 1 for a loop."""
    grams = [tuple(ids[start : start + width]) for start in range(len(ids) - width + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0
