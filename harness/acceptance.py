"""Counts to rates: every definition of acceptance, once.

With `accepted` of `proposed` tokens in each verify round, and one bonus token a round:

- acceptance rate = sum(accepted) / sum(proposed): a ratio of sums, never a mean of ratios;
- acceptance length = 1 + sum(accepted) / rounds: the bonus included;
- unconditional position rate u_i = rounds with accepted > i / rounds, i from 0, so sum(u_i) = length - 1;
- conditional position rate c_i = u_i / u_(i-1), c_0 = u_0;
- step accuracy t_i = share of all positions at which the draft's teacher-forced argmax of step i is the text's token.

The round that ends in EOS is in none of them. Nothing measured gives `None`, never 0 or 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.record import PromptRecord

__all__ = ["Acceptance", "PromptCounts", "broken_counts", "counts_of", "loop_share", "measure_acceptance"]


@dataclass(frozen=True)
class PromptCounts:
    """One prompt's counts, the sufficient statistic of every rate.

    Attributes:
        id: The prompt.
        histogram: Rounds by accepted count, k+1 entries.
        hits: Per step, positions at which the teacher-forced draft was right; `None` where the engine cannot know.
        positions: Per step, positions asked about.
    """

    id: str
    histogram: tuple[int, ...]
    hits: tuple[int, ...] | None = None
    positions: tuple[int, ...] | None = None

    @classmethod
    def of(
        cls, name: str, histogram: Sequence[int], hits: Sequence[int] | None, positions: Sequence[int] | None
    ) -> PromptCounts:
        """Return counts out of the lists that a file holds."""
        return cls(
            name,
            tuple(histogram),
            None if hits is None else tuple(hits),
            None if positions is None else tuple(positions),
        )

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


@dataclass(frozen=True)
class Acceptance:
    """Acceptance over a set of prompts.

    Attributes:
        rate: Acceptance rate, 0 to 1.
        length: Acceptance length in tokens a round, 1 to k+1.
        unconditional: u_i, k entries.
        conditional: c_i, k entries.
        step_accuracy: t_i, k entries; empty where the engine cannot know.
        rounds: Verify rounds.
        accepted: Draft tokens accepted.
        proposed: Draft tokens proposed.
        prompts: Prompts measured, those without a round included.
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

    def to_dict(self) -> dict[str, Any]:
        """Return the object printed by `--json`."""
        return {
            "rate": self.rate,
            "length": self.length,
            "step_accuracy": list(self.step_accuracy),
            "positions": {"unconditional": list(self.unconditional), "conditional": list(self.conditional)},
            "rounds": self.rounds,
            "accepted": self.accepted,
            "proposed": self.proposed,
            "prompts": self.prompts,
        }


def counts_of(record: PromptRecord) -> PromptCounts:
    """Return a record's counts."""
    hits = positions = None
    if record.hits is not None:
        hits = tuple(int(value) for value in (record.hits == 1).sum(axis=0))
        positions = tuple(int(value) for value in (record.hits >= 0).sum(axis=0))
    return PromptCounts(record.id, record.histogram, hits, positions)


def broken_counts(counts: PromptCounts) -> str | None:
    """Return what cannot be in one prompt's counts, `None` where nothing is wrong."""
    if counts.hits is None and counts.positions is None:
        return None
    steps = len(counts.histogram) - 1
    for name, values in (("hits", counts.hits), ("positions", counts.positions)):
        if values is None or len(values) != steps:
            return f"{len(values or ())} entries in {name}, not {steps}"
    for hits, positions in zip(counts.hits or (), counts.positions or (), strict=True):
        if hits > positions:
            return f"{hits} hits at {positions} positions"
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
    histogram = [sum(prompt.histogram[count] for prompt in prompts) for count in range(k + 1)]
    rounds = sum(histogram)
    accepted = sum(count * number for count, number in enumerate(histogram))
    unconditional = tuple(_share(sum(histogram[step + 1 :]), rounds) for step in range(k))
    rate = _share(accepted, rounds * k)
    if rate is not None and not 0 <= rate <= 1:
        raise ValueError(f"an acceptance rate of {rate} cannot be: {accepted} of {rounds * k}")
    return Acceptance(
        rate=rate,
        length=None if rounds == 0 else 1 + accepted / rounds,
        unconditional=unconditional,
        conditional=_conditional(unconditional),
        step_accuracy=_step_accuracy(prompts, k),
        rounds=rounds,
        accepted=accepted,
        proposed=rounds * k,
        prompts=len(prompts),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _conditional(unconditional: Sequence[float | None]) -> tuple[float | None, ...]:
    result: list[float | None] = []
    for index, value in enumerate(unconditional):
        before = 1.0 if index == 0 else unconditional[index - 1]
        result.append(None if value is None or not before else value / before)
    return tuple(result)


def _step_accuracy(prompts: list[PromptCounts], k: int) -> tuple[float | None, ...]:
    known = [(prompt.hits, prompt.positions) for prompt in prompts if prompt.hits and prompt.positions]
    if not known:
        return ()
    return tuple(
        _share(sum(hits[step] for hits, _ in known), sum(positions[step] for _, positions in known))
        for step in range(k)
    )


def loop_share(ids: Sequence[int], width: int = 8) -> float:
    """Return the share of a text's `width`-grams that have occurred before in it: near 1 for a loop."""
    grams = [tuple(ids[start : start + width]) for start in range(len(ids) - width + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0
