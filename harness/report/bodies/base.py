"""What `--json` prints: one typed object for each command, its body. Here is what all of them share.

The schemas in `harness/schemas` are generated from the bodies' types and from their docstrings, so an `Attributes` line
of a body is documentation for users. Imports nothing heavy: an error is printed through this module too.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal

from harness.errors import InputError, one_line

if TYPE_CHECKING:
    from harness.counts.acceptance import Acceptance

__all__ = [
    "AcceptanceBody",
    "Body",
    "ErrorBody",
    "ErrorDetails",
    "PositionRatesBody",
    "StandardErrorsBody",
    "acceptance_body",
    "error_details",
    "plain",
]


@dataclass(frozen=True, kw_only=True)
class Body:
    """One JSON object, as a command prints it.

    Attributes:
        schema_version: The version of these objects' form. A golden's own version is another one.
    """

    schema_version: Literal[1] = 1


def plain(value: Any) -> Any:
    """Return a body, or a part of one, as dictionaries, lists and scalars.

    Not by pydantic's serialiser: it refuses text that is not Unicode, and the name of a file need not be.
    """
    if is_dataclass(value):
        # A field that would be a keyword of Python has an underscore at its end.
        return {field.name.removesuffix("_"): plain(getattr(value, field.name)) for field in fields(value)}
    if hasattr(value, "model_dump"):
        return plain(value.model_dump())
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.value if isinstance(value, enum.Enum) else value


@dataclass(frozen=True)
class ErrorDetails:
    """What went wrong.

    Attributes:
        type: The kind of error: `InputError`, `UsageError`, `Interrupted`, `EngineError` or the name of a Python
            exception.
        message: The whole error in one paragraph.
        exit_code: The status with which the command ends.
        file: The file, folder or address at fault; `None` without one.
        key: The key, tensor, line or option at fault.
        found: The value found.
        expected: The value, range or form expected.
        next_step: What to do now.
    """

    type: str
    message: str
    exit_code: int
    file: str | None = None
    key: str | None = None
    found: str | None = None
    expected: str | None = None
    next_step: str | None = None


@dataclass(frozen=True)
class ErrorBody(Body):
    """What every command prints instead of its own object if it fails."""

    error: ErrorDetails


def error_details(error: Exception, message: str, exit_code: int) -> ErrorDetails:
    """Return an error's parts, as far as it has them."""
    name, text = type(error).__name__, one_line(message)
    if not isinstance(error, InputError):
        return ErrorDetails(name, text, exit_code)
    return ErrorDetails(name, text, exit_code, error.file, error.key, error.found, error.expected, error.next_step)


@dataclass(frozen=True)
class PositionRatesBody:
    """A figure of each position i in the chain, from 0.

    Attributes:
        unconditional: Rounds that accept more than i tokens, as a share of all rounds; k entries.
        conditional: The same rounds, as a share of those that accept at least i tokens; k entries.
    """

    unconditional: tuple[float | None, ...]
    conditional: tuple[float | None, ...]


@dataclass(frozen=True)
class StandardErrorsBody:
    """Standard errors, prompts as clusters; `None` if nothing was measured, or on one prompt only.

    Attributes:
        rate: The acceptance rate's, as a share.
        length: The acceptance length's, in tokens a round.
        step_accuracy: Each step accuracy's, as a share; empty if the engine does not know it.
        position_rates: The position rates', as shares.
    """

    rate: float | None
    length: float | None
    step_accuracy: tuple[float | None, ...]
    position_rates: PositionRatesBody


@dataclass(frozen=True)
class AcceptanceBody:
    """Acceptance over a set of prompts; a figure is `None` if it was not measured.

    Attributes:
        rate: Acceptance rate as measured, 0 to 1: accepted of proposed draft tokens.
        length: Acceptance length in tokens a round, bonus token included.
        step_accuracy: The share of all positions at which the teacher-forced draft is right, for each step; empty if
            the engine does not know it.
        position_rates: Shares of rounds by position in the chain.
        rounds: Verify rounds.
        accepted: Draft tokens accepted.
        proposed: Draft tokens proposed.
        prompts: Number of prompts measured.
        standard_errors: The standard error of each figure.
    """

    rate: float | None
    length: float | None
    step_accuracy: tuple[float | None, ...]
    position_rates: PositionRatesBody
    rounds: int
    accepted: int
    proposed: int
    prompts: int
    standard_errors: StandardErrorsBody


def acceptance_body(acceptance: Acceptance) -> AcceptanceBody:
    """Return an acceptance as it is printed."""
    k, errors = len(acceptance.unconditional), acceptance.errors

    def by_step(letter: str) -> tuple[float | None, ...]:
        return tuple(errors.get(f"{letter}{step}") for step in range(k))

    return AcceptanceBody(
        rate=acceptance.rate,
        length=acceptance.length,
        step_accuracy=acceptance.step_accuracy,
        position_rates=PositionRatesBody(acceptance.unconditional, acceptance.conditional),
        rounds=acceptance.rounds,
        accepted=acceptance.accepted,
        proposed=acceptance.proposed,
        prompts=acceptance.prompts,
        standard_errors=StandardErrorsBody(
            rate=errors.get("rate"),
            length=errors.get("length"),
            step_accuracy=by_step("t") if acceptance.step_accuracy else (),
            position_rates=PositionRatesBody(by_step("u"), by_step("c")),
        ),
    )
