"""Trying faults on a pair: which of its wrong wires its golden would reveal."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

from harness.commands.measure import SILENT
from harness.engines.base import Progress
from harness.errors import InputError
from harness.faults.measure import MeasuredFaults, measure_faults
from harness.faults.wirings import as_list
from harness.golden.comparable import require_comparable
from harness.golden.find import golden_in_use
from harness.golden.schema import Noise
from harness.golden.store import Golden, load_golden
from harness.pair.pair import Pair, load_prompts

__all__ = ["FaultsResult", "faults"]


@dataclass(frozen=True)
class FaultsResult:
    """A pair with every fault, and the golden that judged them.

    Attributes:
        pair: Right as it is.
        golden: Recorded from the right wiring.
        measured: Each fault's figures.
        seconds: Wall-clock time, loading included.
    """

    pair: Pair
    golden: Golden
    measured: MeasuredFaults
    seconds: float

    @property
    def unseen(self) -> list[str]:
        """Names of the wrong wires that no detector sees."""
        return [one.name for one in self.measured.wrong if not one.seen_by]

    @property
    def noise(self) -> Noise | None:
        """What rounding alone changes in the pair's dtype; `None` if the golden does not say."""
        return self.golden.document.noise.get(self.pair.settings.engine.dtype)

    @property
    def exit_code(self) -> int:
        """The command line's status: a target in other numbers decides nothing, since it may be near enough."""
        return 1 if self.unseen or self.measured.right.seen_by else 0


def faults(pair: Pair, *, other: str | None = None, progress: Progress = SILENT) -> FaultsResult:
    """Measure a pair with every fault.

    Args:
        pair: Run by the reference engine, whatever its own is.
        other: `--other`: the boundaries that the incident serves, separated by commas; `None` leaves the incident out.
        progress: Told of each run of the target, and of each wrong wire.

    Raises:
        HarnessError: The pair cannot be run as stated, or there is no golden that could judge it.
    """
    start = time.perf_counter()
    served = None if other is None else _boundaries(other, pair)
    golden = load_golden(golden_in_use(pair))
    prompts = load_prompts(pair)
    require_comparable(golden, pair, prompts, subset=False)
    measured = measure_faults(pair, golden, prompts, served, progress)
    return FaultsResult(pair, golden, measured, time.perf_counter() - start)


def _boundaries(text: str, pair: Pair) -> tuple[int, ...]:
    right, layers = pair.boundaries, pair.target.num_layers
    found: tuple[int, ...] = ()
    with suppress(ValueError):
        found = tuple(int(part) for part in text.split(","))
    if len(found) != len(right) or found == right or not all(0 <= boundary <= layers for boundary in found):
        raise InputError(
            "these are not boundaries that an incident could serve",
            key="--other",
            found=text,
            expected=f"{len(right)} boundaries from 0 to {layers}, separated by commas, other than {as_list(right)}",
            next_step="give the boundaries that another draft of this target reads, or leave the option out",
        )
    return found
