"""Comparing two pairs, engines or results with each other, paired by prompt, without a golden."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pydantic

from harness.commands.measure import Measurement
from harness.counts.acceptance import (
    Acceptance,
    PromptCounts,
    columns,
    counts_of,
    figures,
    greatest,
    measure_acceptance,
)
from harness.counts.statistics import PairedInterval, paired_drop, prompts_needed
from harness.detectors.acceptance import judge_drop
from harness.detectors.base import State
from harness.errors import InputError
from harness.files import as_model, read_json_object
from harness.golden.schema import CountedPrompt

__all__ = ["Comparison", "Outcome", "Side", "compare", "read_result", "side_of"]


class Outcome(enum.StrEnum):
    """The result of a comparison, for the second side."""

    WORSE = "worse"
    BETTER = "better"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"
    NOT_MEASURED = "not_measured"


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    Attributes:
        label: The pair's name with engine, device and dtype.
        counts: Each prompt's counts, by prompt id.
        hashes: Each prompt's hash, by prompt id: only equal prompts may be compared.
    """

    label: str
    counts: Mapping[str, PromptCounts]
    hashes: Mapping[str, str]


@dataclass(frozen=True)
class Comparison:
    """Two sides and the differences between them.

    Attributes:
        first: The side that drops are measured from.
        second: The side that the outcome is about.
        prompts: Ids of the prompts that both sides measured.
        outcome: Whether the second side's acceptance rate is worse, better or the same.
        drops: The drop of each figure from the first side to the second, by the figure's name.
        margin: The greatest drop of the rate that does not matter.
    """

    first: Side
    second: Side
    prompts: tuple[str, ...]
    outcome: Outcome
    drops: Mapping[str, PairedInterval | None]
    margin: float

    @property
    def exit_code(self) -> int:
        """The exit status of the command line: 1 if the second side is worse, 3 if the comparison is undecided."""
        return {Outcome.WORSE: 1, Outcome.INCONCLUSIVE: 3, Outcome.NOT_MEASURED: 3}.get(self.outcome, 0)

    @property
    def better(self) -> str | None:
        """The label of the better side, `None` if neither is better."""
        return {Outcome.WORSE: self.first.label, Outcome.BETTER: self.second.label}.get(self.outcome)

    @property
    def needed(self) -> int | None:
        """About how many prompts would decide an undecided comparison, `None` if no number would."""
        rate = self.drops["rate"]
        return None if rate is None or self.outcome is not Outcome.INCONCLUSIVE else prompts_needed(rate, self.margin)

    def acceptance(self, side: Side) -> Acceptance:
        """Return a side's acceptance over the prompts that both measured."""
        return measure_acceptance(side.counts[name] for name in self.prompts)


def side_of(measurement: Measurement) -> Side:
    """Return a measurement as a side of a comparison.

    Raises:
        InputError: The engine reports only sums over all prompts.
    """
    if measurement.run.aggregate is not None:
        raise InputError(
            "an engine that reports only sums over all prompts cannot be compared prompt by prompt",
            key="--endpoint-a or --endpoint-b",
            found=measurement.run.engine,
            expected="an engine that counts each prompt's rounds",
            next_step="use harness check, which judges sums by the floor",
        )
    records = measurement.run.records
    return Side(
        f"{measurement.pair.name} ({measurement.run.engine} {measurement.run.device} {measurement.run.dtype})",
        {record.id: counts_of(record) for record in records},
        {record.id: record.prompt_hash for record in records},
    )


class _Result(pydantic.BaseModel):
    """What is read of a saved result. Before results had a version, the prompts' counts were under `prompts`."""

    model_config = pydantic.ConfigDict(extra="allow", strict=True)
    schema_version: Literal[1] = 1
    pair: str
    engine: dict[str, str]
    by_prompt: list[CountedPrompt] = pydantic.Field(
        min_length=1, validation_alias=pydantic.AliasChoices("by_prompt", "prompts")
    )

    @pydantic.field_validator("by_prompt")
    @classmethod
    def _one_each(cls, value: list[CountedPrompt]) -> list[CountedPrompt]:
        ids = [prompt.id for prompt in value]
        repeated = next((name for index, name in enumerate(ids) if name in ids[:index]), None)
        if repeated is not None:
            raise ValueError(f"the prompt {repeated!r} occurs twice")
        return value


def read_result(file: Path) -> Side:
    """Read a result that `harness measure --json` or `harness check --json` printed.

    Raises:
        InputError: The file is not such a result.
    """
    step = "write one with harness measure PAIR --json"
    raw = read_json_object(file, what="result", next_step=step)
    result = as_model(raw, _Result, file=file, what="result", next_step=step)
    counts = {prompt.id: prompt.counts() for prompt in result.by_prompt}
    engine = result.engine
    label = f"{result.pair} ({' '.join(engine[name] for name in ('name', 'device', 'dtype') if name in engine)})"
    return Side(label, counts, {prompt.id: prompt.hash for prompt in result.by_prompt})


def compare(first: Side, second: Side, *, margin: float, alpha: float) -> Comparison:
    """Compare two sides on the prompts that both measured.

    Args:
        first: The side that drops are measured from.
        second: The side that the outcome is about.
        margin: The greatest drop of the rate that does not matter.
        alpha: Chance of a wrong outcome, shared by the two directions.

    Raises:
        InputError: The sides have no prompt in common, different prompts under one id, or different chain lengths.
    """
    shared = tuple(name for name in first.counts if name in second.counts)
    if not shared:
        raise InputError(
            "the two sides have no prompt in common",
            key=f"{first.label} and {second.label}",
            expected="two measurements of the same prompts",
        )
    for name in shared:
        if first.hashes[name] != second.hashes[name]:
            raise InputError(
                "the two sides measured different prompts under one id",
                key=f"prompt {name!r}",
                found=f"{first.hashes[name]} and {second.hashes[name]}",
                expected="the same tokens",
            )
    lengths = {len(side.counts[name].histogram) - 1 for side in (first, second) for name in shared}
    if len(lengths) > 1:
        raise InputError(
            "the two sides have different chain lengths",
            key="num_steps",
            found=" and ".join(map(str, sorted(lengths))),
            expected="the same length on both sides",
            next_step="measure one of them again with --k",
        )
    k = lengths.pop()
    sides = [[side.counts[name] for name in shared] for side in (first, second)]
    drops = {
        name: paired_drop(columns(sides[0], figure), columns(sides[1], figure), alpha / 2, most=greatest(name, k))
        for name, figure in figures(k).items()
    }
    return Comparison(first, second, shared, _outcome(drops["rate"], margin), drops, margin)


def _outcome(drop: PairedInterval | None, margin: float) -> Outcome:
    if drop is None:
        return Outcome.NOT_MEASURED
    if judge_drop(drop, margin) is State.REGRESSION:
        return Outcome.WORSE
    if drop.low > -margin and drop.high < margin:
        return Outcome.SAME
    return Outcome.BETTER if drop.high < 0 else Outcome.INCONCLUSIVE
