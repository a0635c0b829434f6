"""The JSON of a golden: its fields and the sums that they must keep. It is made to be read in a diff."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

import pydantic

from harness.counts.acceptance import Acceptance, PromptCounts, broken_counts, counts_of, measure_acceptance
from harness.counts.run import PromptRecord
from harness.files import json_text
from harness.pair.pairfile import DecodeSettings

__all__ = [
    "SCHEMA_VERSION",
    "SCHEMA_VERSIONS",
    "Blindness",
    "CountedPrompt",
    "GoldenDocument",
    "GoldenPrompt",
    "HistoryEntry",
    "LeftOutPrompt",
    "Noise",
    "NoiseArm",
    "TargetShape",
    "Totals",
    "WiringEntry",
    "dump",
]

SCHEMA_VERSION: Literal[2] = 2
"""The version that is written."""
SCHEMA_VERSIONS = (1, 2)
"""The versions that are read. Version 1 lacks the end-of-text ids, the pair file, revisions and left-out prompts."""


class _Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, populate_by_name=True
    )


# Bounded, so that sums of counts stay exact and their ratios stay finite.
Count = Annotated[int, pydantic.Field(ge=0, lt=1 << 40)]


class TargetShape(_Strict):
    """The properties by which two targets count as different ones."""

    architecture: str
    num_layers: int
    hidden_size: int
    vocab_size: int


class WiringEntry(_Strict):
    """The layer ids as written in the draft's config, the conventions that read them, and the captured boundaries."""

    ids: list[int]
    ids_key: str
    trained_as: str
    served_by: str | None
    boundaries: list[int]


class CountedPrompt(pydantic.BaseModel):
    """One prompt's counts in a file: in a golden, or in a result that `--json` printed.

    Attributes:
        id: The prompt's id.
        category: The prompt's category.
        hash: Hash of the prompt's token ids.
        histogram: Verify rounds by accepted count.
        correct: Per step, positions at which the teacher-forced draft was right; `hits` in files of earlier releases.
        evaluated: Per step, positions at which that was asked; `positions` in files of earlier releases.
        eos_round: `[proposed, accepted]` of the verify round that ended in EOS.
    """

    model_config = pydantic.ConfigDict(extra="allow", strict=True)

    id: str
    category: str
    hash: str
    histogram: list[Count] = pydantic.Field(min_length=2)
    correct: list[Count] | None = pydantic.Field(
        None, validation_alias=pydantic.AliasChoices("correct", "hits"), serialization_alias="hits"
    )
    evaluated: list[Count] | None = pydantic.Field(
        None, validation_alias=pydantic.AliasChoices("evaluated", "positions"), serialization_alias="positions"
    )
    eos_round: tuple[Count, Count] | None = None

    _names: ClassVar[tuple[str, str]] = ("correct", "evaluated")

    @staticmethod
    def row(record: PromptRecord) -> dict[str, Any]:
        """Return one prompt's counts as this model's fields: every rate can be computed from them again."""
        counts, eos = counts_of(record), record.eos_round
        return {
            "id": record.id,
            "category": record.category,
            "hash": record.prompt_hash,
            "histogram": list(counts.histogram),
            "eos_round": None if eos is None else (eos.proposed, eos.accepted),
            "correct": None if counts.correct is None else list(counts.correct),
            "evaluated": None if counts.evaluated is None else list(counts.evaluated),
        }

    @pydantic.model_validator(mode="after")
    def _counts_add_up(self) -> Self:
        problem = broken_counts(self.counts(), self._names)
        if problem is not None:
            raise ValueError(f"prompt {self.id!r} has {problem}")
        return self

    def counts(self) -> PromptCounts:
        """Return the counts in the form that `harness.counts.acceptance` takes."""
        return PromptCounts.of(self.id, self.histogram, self.correct, self.evaluated)


class GoldenPrompt(_Strict, CountedPrompt):
    """One prompt's counts in a golden.

    Attributes:
        tokens: Number of prompt tokens.
        output: Number of tokens of the reference continuation.
        again: Histograms of further runs of the same engine, which show how much it differs from itself.
    """

    model_config = pydantic.ConfigDict(extra="forbid")
    _names: ClassVar[tuple[str, str]] = ("hits", "positions")

    tokens: Annotated[Count, pydantic.Field(ge=1)]
    output: Count
    again: list[list[Count]] = []

    def counts(self) -> PromptCounts:
        """Return the counts of every run, in the form that `harness.counts.acceptance` takes."""
        return replace(super().counts(), again=tuple(map(tuple, self.again)))

    @pydantic.model_serializer(mode="wrap")
    def _without_nothing(self, handler: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        row: dict[str, Any] = handler(self)
        # Most engines repeat themselves exactly, and a row should stay short enough to be read in a diff.
        return row if row.get("again") else {name: value for name, value in row.items() if name != "again"}

    @pydantic.model_validator(mode="after")
    def _runs_add_up(self) -> Self:
        wrong = next((len(run) for run in self.again if len(run) != len(self.histogram)), None)
        if wrong is not None:
            raise ValueError(f"prompt {self.id!r} has {wrong} entries in a run of again, not {len(self.histogram)}")
        return self

    @pydantic.model_validator(mode="after")
    def _eos_round_adds_up(self) -> Self:
        if self.eos_round is not None and self.eos_round[1] > self.eos_round[0]:
            raise ValueError(
                f"prompt {self.id!r} has an eos_round of {self.eos_round[1]} of {self.eos_round[0]} tokens"
            )
        return self


class NoiseArm(_Strict):
    """One way in which rounding was made to differ when the golden was recorded, and what that changed.

    Attributes:
        how: In words, what differed.
        windows: Windows of k neighbouring positions compared.
        changed: Windows in which at least one proposed chain changed.
        by_prompt: `[changed, windows]` of each prompt; `None` in version 1, which did not keep them.
        likelihood: Greatest absolute change of the mean log-probability that is put down to it, in nats.
        drifted: Positions at which the target chose another token by more than a near-tie.
        evaluated: Positions at which the target's choice was compared; 0 if it was not.
    """

    how: str
    windows: Annotated[Count, pydantic.Field(ge=1)]
    changed: Count
    by_prompt: list[list[Count]] | None = None
    likelihood: pydantic.NonNegativeFloat
    drifted: Count = 0
    evaluated: Count = 0

    @pydantic.model_validator(mode="after")
    def _adds_up(self) -> Self:
        if self.changed > self.windows:
            raise ValueError(f"{self.changed} windows changed, of {self.windows}")
        if self.drifted > self.evaluated:
            raise ValueError(f"{self.drifted} positions drifted, of {self.evaluated}")
        if self.by_prompt is not None:
            if any(len(counts) != 2 or counts[0] > counts[1] for counts in self.by_prompt):
                raise ValueError("by_prompt is not a list of [changed, windows] of each prompt")
            sums = [sum(column) for column in zip(*self.by_prompt, strict=True)]
            if sums != [self.changed, self.windows]:
                raise ValueError(f"by_prompt does not add up to {self.changed} of {self.windows} windows")
        return self


class Noise(_Strict):
    """Changes that rounding alone makes in one dtype, measured when the golden was recorded.

    The arms are never summed: a run may round as differently as the worst of them does.

    Attributes:
        arms: Each way in which rounding was made to differ. A golden of version 1 has one, which pools several.
    """

    arms: list[NoiseArm] = pydantic.Field(min_length=1)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _of_version_1(cls, value: Any) -> Any:
        if isinstance(value, dict) and "blocks" in value:
            arm = {("windows" if name == "blocks" else name): part for name, part in value.items()}
            return {"arms": [arm]}
        return value

    @pydantic.model_serializer(mode="wrap")
    def _as_version_1(self, handler: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        first, *others = self.arms
        if not others and first.by_prompt is None:
            names = {"blocks": first.windows, "changed": first.changed}
            return {**names, "likelihood": first.likelihood, "how": first.how}
        written: dict[str, Any] = handler(self)
        return written

    @property
    def likelihood(self) -> float:
        """The greatest change of the mean log-probability that an arm is responsible for, in nats."""
        return max(arm.likelihood for arm in self.arms)


class LeftOutPrompt(_Strict):
    """A prompt of the prompts file that was not recorded, since its continuation is a loop.

    Attributes:
        id: The prompt's id.
        hash: Hash of its token ids; another prompt under the same id is not left out.
        repeated: The share of its 8-grams that repeat an earlier one, 0 to 1.
    """

    id: str
    hash: str
    repeated: float = pydantic.Field(ge=0, le=1)


class Blindness(_Strict):
    """The fault that was planted when the golden was recorded, and the detectors that saw it.

    Attributes:
        boundaries: The pair's boundaries, each moved by one.
        seen_by: Names of the detectors that found a change.
    """

    boundaries: list[int]
    seen_by: list[str] = pydantic.Field(min_length=1)


class Totals(_Strict):
    """Sums over the prompts, and the rates computed from them."""

    prompts: Count
    rounds: Count
    accepted: Count
    proposed: Count
    rate: float
    length: float


class HistoryEntry(_Strict):
    """The totals of an earlier record, kept to show a floor that is lowered step by step."""

    recorded_at: str
    reason: str
    floor: float
    rate: float
    length: float
    prompts: Count
    standard_error: pydantic.NonNegativeFloat | None = None


class GoldenDocument(_Strict):
    """The JSON of a golden baseline; its tensors are in a file next to it, which is named by its own hash.

    Attributes:
        eos_ids: The ids that ended a text; `None` in version 1, which does not say.
        pair_file: The pair file, relative to the golden's folder; `None` in version 1, or if that path cannot be given.
        revisions: The commits of a target and draft from the hub, by `target` and `draft`.
        left_out: Prompts of the prompts file that were not recorded.
        runs: How each run that was measured was made, if there are several: the first is the one in `histogram`.
        blindness: `None` if the engine could not check it.
    """

    schema_version: Literal[1, 2]
    pair: str
    recorded_at: str
    reason: str
    engine: str
    device: str
    dtype: str
    floor: float = pydantic.Field(ge=0, le=1)
    target: TargetShape
    wiring: WiringEntry
    decode: dict[str, Any]
    versions: dict[str, str]
    machine: dict[str, str]
    commit: str | None
    hashes: dict[str, str]
    totals: Totals
    noise: dict[str, Noise]
    blindness: Blindness | None = None
    prompts: list[GoldenPrompt]
    tensors: str = pydantic.Field(pattern=r"^[0-9a-f]{64}\.safetensors$")
    history: list[HistoryEntry]
    eos_ids: list[int] | None = None
    pair_file: str | None = None
    revisions: dict[str, str] = {}
    left_out: list[LeftOutPrompt] = []
    runs: list[str] = []

    @property
    def acceptance(self) -> Acceptance:
        """The recorded acceptance with its standard errors."""
        return measure_acceptance(prompt.counts() for prompt in self.prompts)

    @pydantic.field_validator("decode")
    @classmethod
    def _known_settings(cls, value: dict[str, Any]) -> dict[str, Any]:
        try:
            known = DecodeSettings.model_validate(value).comparable() == value
        except pydantic.ValidationError:
            known = False
        if not known:
            raise ValueError(f"must have exactly {', '.join(DecodeSettings.model_fields)}, each within its range")
        return value

    @pydantic.model_validator(mode="after")
    def _adds_up(self) -> GoldenDocument:
        if self.schema_version != 1 and self.eos_ids is None:
            raise ValueError("eos_ids is missing, which version 2 has")
        if any(len(prompt.again) != max(0, len(self.runs) - 1) for prompt in self.prompts):
            raise ValueError(f"runs names {len(self.runs)} runs, and a prompt has another number of them in again")
        ids = [prompt.id for prompt in self.prompts]
        repeated = sorted({name for name in ids if ids.count(name) > 1})
        if repeated:
            raise ValueError(f"the prompt {repeated[0]!r} occurs twice")
        steps = self.decode["num_steps"]
        for prompt in self.prompts:
            if len(prompt.histogram) != steps + 1:
                raise ValueError(
                    f"prompt {prompt.id!r} has {len(prompt.histogram)} entries in histogram, not {steps + 1}"
                )
        acceptance = self.acceptance
        for name in ("prompts", "rounds", "accepted", "proposed", "rate", "length"):
            stated, summed = getattr(self.totals, name), getattr(acceptance, name)
            if summed is None or abs(stated - summed) > 1e-9:
                raise ValueError(f"totals.{name} is {stated}, but the prompts' counts give {summed}")
        if self.totals.rate < self.floor:
            raise ValueError(f"the floor {self.floor} is above the recorded rate {self.totals.rate:.4f}")
        return self


_SINCE_VERSION_2 = {"eos_ids", "pair_file", "revisions", "left_out", "runs"}


def dump(document: GoldenDocument) -> bytes:
    """Return the document's JSON: one line per prompt and per earlier record, one line per key elsewhere."""
    entries = []
    later = _SINCE_VERSION_2 if document.schema_version == 1 else set()
    for name, value in document.model_dump(mode="json", by_alias=True, exclude=later).items():
        text = json_text(value).replace("\n", "\n  ")
        if name in ("prompts", "history", "left_out") and value:
            text = _rows(value, "  ")
        elif name == "noise":
            arms = [
                f"    {json_text(dtype)}: " + (_arms(noise) if "arms" in noise else json_text(noise, indent=None))
                for dtype, noise in value.items()
            ]
            text = "{\n" + ",\n".join(arms) + "\n  }" if arms else "{}"
        entries.append(f"  {json_text(name)}: {text}")
    return ("{\n" + ",\n".join(entries) + "\n}\n").encode()


def _rows(values: list[Any], indent: str) -> str:
    """Return a list with each entry on a line of its own."""
    rows = f",\n{indent}  ".join(json_text(row, indent=None) for row in values)
    return f"[\n{indent}  {rows}\n{indent}]"


def _arms(noise: dict[str, Any]) -> str:
    return f'{{"arms": {_rows(noise["arms"], "    ")}}}'
