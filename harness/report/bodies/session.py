"""What `pytest --acceptance-json` writes. The plugin loads it in every run of pytest, so it imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from harness.report.bodies.base import AcceptanceBody

__all__ = ["SessionBody", "UncheckedBody", "UpdateBody"]

# Each pair's result: `CheckBody` by its schema. Between the processes of a distributed run it travels as plain data.
PairT = TypeVar("PairT")


@dataclass(frozen=True)
class UncheckedBody:
    """Tests that this machine could not run.

    Attributes:
        marker: What they need: `gpu` or `sglang`.
        tests: How many they are.
        reason: What the machine lacks.
    """

    marker: str
    tests: int
    reason: str


@dataclass(frozen=True)
class UpdateBody:
    """What `--acceptance-update` did about a pair's golden.

    Attributes:
        pair: The pair's name.
        done: What was done; a refusal leaves the golden as it was.
        golden: The golden's file; `None` if the pair does not have one.
        before: The acceptance that it held; `None` without an earlier one.
        after: The acceptance that it holds now; `None` if it was refused.
        changed_prompts: Number of prompts measured differently, added and removed ones included; `None` if it was
            refused.
        error: Why it was refused.
    """

    pair: str
    done: Literal["recorded", "unchanged", "refused"]
    golden: str | None
    before: AcceptanceBody | None
    after: AcceptanceBody | None
    changed_prompts: int | None
    error: str | None


@dataclass
class SessionBody(Generic[PairT]):
    """`pytest --acceptance-json`: the results of a run. The parts of the plugin fill it in until the run ends.

    Attributes:
        schema_version: The version of these objects' form. A golden's own version is another one.
        pairs: Each pair's result, as `harness check --json` prints it, by its file.
        not_checked: What the machine lacked.
        unused_goldens: Folders of goldens that no pair file uses; `None` if the run was not over whole folders.
        updates: What was done about each pair's golden, by pair file; `None` without `--acceptance-update`.
    """

    schema_version: Literal[1] = 1
    pairs: dict[str, PairT] = field(default_factory=dict)
    not_checked: list[UncheckedBody] = field(default_factory=list)
    unused_goldens: list[str] | None = None
    updates: dict[str, UpdateBody] | None = None
