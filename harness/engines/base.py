"""What the harness asks of an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from harness.counts.run import PromptRecord, Run
from harness.pair.pair import Pair
from harness.pair.prompts import Prompt

__all__ = [
    "Continuations",
    "Engine",
    "NoiseSample",
    "Probe",
    "Prober",
    "Progress",
    "RecordGuide",
    "Recorder",
    "Recording",
    "Resolved",
    "Sampler",
    "StateView",
    "view_of",
]

# Continuations by prompt id.
Continuations = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Progress:
    """Receives how far an engine is.

    Attributes:
        begin: Called with what begins and how many prompts it goes through.
        advance: Called with the number of prompts just finished.
    """

    begin: Callable[[str, int], None] = lambda _what, _total: None
    advance: Callable[[int], None] = lambda _count: None


class Engine(Protocol):
    """Turns a pair and its prompts into records."""

    def run(
        self, pair: Pair, prompts: Sequence[Prompt], continuations: Continuations | None, progress: Progress
    ) -> Run:
        """Run the pair.

        Args:
            pair: The pair, with the engine settings to use.
            prompts: What to measure, tokenised; one record for each comes back in this order.
            continuations: The reference continuations by prompt id, `None` if there is no golden. An engine that
                replays measures on them; one that decodes also reports whether the target agrees with them and with
                its own output.
            progress: Receives how far it is.
        """
        ...


@dataclass(frozen=True)
class NoiseSample:
    """What one way of rounding differently changed: an arm.

    Attributes:
        how: What differed, in words.
        by_prompt: Changed windows of k neighbouring positions and windows compared, for each prompt.
        likelihood: Three times the change of the mean log-probability, in nats.
        drifted: Positions at which the target chose another token by more than a near-tie.
        evaluated: Positions at which its choice was compared.
    """

    how: str
    by_prompt: tuple[tuple[int, int], ...]
    likelihood: float
    drifted: int = 0
    evaluated: int = 0


@dataclass(frozen=True)
class Recording:
    """What a golden is made of.

    Attributes:
        run: The pair as it is, on the prompts that were recorded.
        noise: What rounding alone changes, by dtype: one sample for each way in which it was made to differ.
        shifted: The same continuations with every boundary moved by one, which a golden must be able to see; `None` if
            the engine cannot do that.
        shifted_boundaries: Those boundaries.
        again: Further runs of the same pair, by an engine that may differ from itself.
        runs: How each run was made, in words, `run` first; empty if there is only one.
    """

    run: Run
    noise: Mapping[str, Sequence[NoiseSample]]
    shifted: Run | None = None
    shifted_boundaries: tuple[int, ...] = ()
    again: tuple[Run, ...] = ()
    runs: tuple[str, ...] = ()


class RecordGuide(Protocol):
    """Says, as a record advances, what is known already and what no golden may be made of."""

    def known(self, prompts: Sequence[Prompt]) -> Continuations:
        """Return the continuations that an earlier attempt has decoded, by prompt id."""
        ...

    def decoded(self, prompt: Prompt, continuation: tuple[int, ...]) -> bool:
        """Take a continuation as soon as it is known; return whether its prompt is recorded.

        Raises:
            InputError: The golden would be misleading.
        """
        ...

    def measured(self, records: Sequence[PromptRecord]) -> None:
        """Take the records before anything else is measured.

        Raises:
            InputError: The golden would be misleading.
        """
        ...


class Recorder(Protocol):
    """An engine that can give what a golden is made of."""

    def text_versions(self) -> Mapping[str, str] | None:
        """Return the library versions that determine what the target decodes; `None` if its texts cannot be resumed.

        An engine that counts rounds as it decodes has no use for a text alone.
        """
        ...

    def record(self, pair: Pair, prompts: Sequence[Prompt], guide: RecordGuide, progress: Progress) -> Recording:
        """Decode the prompts, measure the pair on the continuations, and measure what the golden must tell apart.

        Args:
            pair: The pair, with the engine settings to use.
            prompts: What to record, tokenised; the golden has one entry for each that the guide keeps.
            guide: Is told what was decoded and measured as soon as it is known.
            progress: Receives how far it is.
        """
        ...


class Sampler(Protocol):
    """An engine that can be run again to see its states at other positions than those that every run samples."""

    def sample(
        self, pair: Pair, prompts: Sequence[Prompt], continuations: Continuations, at: Mapping[str, tuple[int, ...]]
    ) -> Sequence[PromptRecord]:
        """Run some prompts once more; the records' sketches are of the positions asked for.

        Args:
            pair: The pair, with the engine settings to use.
            prompts: What to measure, tokenised.
            continuations: The reference continuations by prompt id.
            at: Which starts are sampled, by prompt id; `harness.counts.stages.POSITIONS` of them.
        """
        ...


@dataclass(frozen=True)
class StateView:
    """What is shown of a tensor of states.

    Attributes:
        shape: The captured tensor's shape.
        norm: The length of its last position's vector.
        first: That vector's first numbers.
    """

    shape: tuple[int, ...]
    norm: float
    first: tuple[float, ...]


def view_of(states: Any) -> StateView:
    """Return what is shown of a tensor of states [1, T, W]."""
    last = states[0, -1].float()
    return StateView(tuple(states.shape), float(last.norm()), tuple(round(float(value), 4) for value in last[:4]))


@dataclass(frozen=True)
class Resolved:
    """What an external engine made of the draft's config.

    Attributes:
        model: The class of its target.
        ids: The layer ids that it found; `None` if it found none and takes its default.
        captured: The boundaries that the target's class was set to capture; `None` if the class does not keep a list.
    """

    model: str
    ids: tuple[int, ...] | None
    captured: tuple[int, ...] | None


@dataclass(frozen=True)
class Probe:
    """One prompt's way through the pipeline.

    Attributes:
        slots: Each captured boundary, in the order of concatenation.
        concatenated: What the target gave.
        received: What the draft was given; `None` if that cannot differ from `concatenated`.
        fused: What its `fc` made of that; `None` if the engine does not show it.
        proposals: The first chain, target ids.
        predicted: The target's own choice after the last known token and after each proposed; `None` if the engine
            does not verify.
        accepted: How many of the chain were accepted.
        resolved: What an external engine made of the config.
    """

    slots: tuple[StateView, ...]
    concatenated: StateView
    fused: StateView | None
    proposals: tuple[int, ...]
    received: StateView | None = None
    predicted: tuple[int, ...] | None = None
    accepted: int | None = None
    resolved: Resolved | None = None


class Prober(Protocol):
    """An engine that can show what passes its pipeline."""

    def probe(self, pair: Pair, prompt: Prompt) -> Probe:
        """Run the target on a prompt and the draft for one chain."""
        ...
