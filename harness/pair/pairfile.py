"""The pair file: one TOML with a target, its draft, how they are run and the acceptance expected of them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic

from harness.errors import InputError, invalid
from harness.files import read_text

__all__ = ["DecodeSettings", "EngineSettings", "GateSettings", "PairFile", "Timeouts", "read_pair_file"]

Dtype = Literal["float64", "float32", "bfloat16", "float16"]


class _Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)


class DecodeSettings(_Strict):
    """How text is decoded. A verify round proposes `num_steps` tokens (a chain) and adds one bonus token."""

    num_steps: int = pydantic.Field(default=3, ge=1, le=64)
    topk: int = pydantic.Field(default=1, ge=1)
    num_draft_tokens: int | None = pydantic.Field(default=None, ge=2)
    max_new_tokens: int = pydantic.Field(default=256, ge=1)
    temperature: float = pydantic.Field(default=0.0, ge=0.0)

    @pydantic.field_validator("temperature", mode="before")
    @classmethod
    def _integer_temperature(cls, value: object) -> object:
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53:
            return float(value)
        # A larger integer does not fit a float exactly, and is left to pydantic to refuse.
        return value

    @pydantic.model_validator(mode="after")
    def _chain(self) -> DecodeSettings:
        if self.topk == 1 and self.num_draft_tokens not in (None, self.num_steps + 1):
            raise ValueError(
                f"num_draft_tokens = {self.num_draft_tokens} does not fit num_steps = {self.num_steps}: "
                f"a chain verifies num_steps + 1 = {self.num_steps + 1} tokens"
            )
        return self

    def comparable(self) -> dict[str, Any]:
        """Return the settings that two measurements must share to be compared."""
        return self.model_dump(exclude={"num_draft_tokens"}) | {
            "num_draft_tokens": self.num_draft_tokens or self.num_steps + 1
        }


class GateSettings(_Strict):
    """The acceptance that the pair must have.

    Attributes:
        floor: Lowest acceptance rate allowed, as a share.
        margin: Drop of the rate that does not matter, as a share.
        alpha: Chance of a false alarm allowed for the whole verdict.
        strict: Whether a change that does not cost acceptance fails.
    """

    floor: float = pydantic.Field(default=0.70, ge=0.0, le=1.0)
    margin: float = pydantic.Field(default=0.01, gt=0.0, lt=1.0)
    # Below that, quantiles of the distributions it is looked up in are no longer finite.
    alpha: float = pydantic.Field(default=0.001, ge=1e-12, lt=0.5)
    strict: bool = True


Seconds = Annotated[float | int, pydantic.Field(gt=0, le=7 * 24 * 3600)]


class Timeouts(_Strict):
    """How long a server may take, in seconds.

    Attributes:
        connect: Longest time until it accepts a connection.
        silence: Longest time without a byte of an answer.
        total: Longest time of all requests of a run together.
    """

    connect: Seconds = 10
    silence: Seconds = 300
    total: Seconds = 7200


class EngineSettings(_Strict):
    """Which engine runs the pair, and how.

    Attributes:
        name: The engine; `server` if only an endpoint is given.
        dtype: The dtype that target and draft compute in. A server reports its own.
        device: The device that they run on. A server reports its own.
        device_map: How the reference engine spreads the target over devices: `auto`, or a device by module name as
            accelerate reads it. The draft is on `device`.
        endpoint: The address of a running server.
        plain_endpoint: The address of a server of the same target without speculation, which judges the output.
        concurrency: Most requests sent to a server at once.
        timeouts: How long a server may take.
        args: Arguments passed on to SGLang.
    """

    name: str = "reference"
    dtype: Dtype = "float32"
    device: str = "cpu"
    device_map: Literal["auto"] | dict[str, str | int] | None = None
    endpoint: str = ""
    plain_endpoint: str = ""
    concurrency: int = pydantic.Field(default=16, ge=1, le=1024)
    timeouts: Timeouts = Timeouts()
    args: dict[str, Any] = pydantic.Field(default_factory=dict)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _endpoint_names_the_engine(cls, value: object) -> object:
        if isinstance(value, dict) and value.get("endpoint") and "name" not in value:
            return value | {"name": "server"}
        return value


class PairFile(_Strict):
    """A pair file's content; see the README for every key.

    `target_revision` and `draft_revision` are a branch, tag or commit of a hub id; a folder does not have one.
    `target_made_by` is the command that makes the target, which a message shows if it is missing; nothing runs it.
    """

    name: str = pydantic.Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
    target: str = pydantic.Field(min_length=1)
    target_revision: str | None = None
    target_made_by: str | None = pydantic.Field(default=None, min_length=1)
    draft: str = pydantic.Field(min_length=1)
    draft_revision: str | None = None
    prompts: str = pydantic.Field(min_length=1)
    golden: str | None = None
    chat_template: str = "target"
    thinking: bool | None = None
    trained_as: str | None = None
    served_by: str | None = None
    decode: DecodeSettings = DecodeSettings()
    gate: GateSettings = GateSettings()
    engine: EngineSettings = EngineSettings()


def read_pair_file(path: Path) -> PairFile:
    """Read and validate a pair file.

    Raises:
        InputError: The file is missing or not TOML, or has an unknown key or an unusable value.
    """
    text = read_text(path, what="pair file")
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # ValueError as well as TOMLDecodeError: Python refuses an integer of thousands of digits.
        raise InputError(
            "the pair file is not valid TOML", file=path, found=str(error), expected="TOML as the README shows it"
        ) from None
    try:
        return PairFile.model_validate(raw)
    except pydantic.ValidationError as error:
        raise invalid(error, PairFile, file=path) from None
