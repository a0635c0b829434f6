"""Checking a pair: measured, and gated against its golden."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.commands.measure import SILENT, Measurement, require_finite
from harness.counts.run import Run
from harness.counts.statistics import PairedInterval
from harness.detectors import DETECTORS, Context, Finding, Findings, State, contract, run_detectors
from harness.detectors.acceptance import AcceptanceFigures
from harness.detectors.attribution import Attribution, attribute
from harness.detectors.contract import unservable
from harness.detectors.gate import exit_code, verdict
from harness.engines.base import Progress
from harness.engines.registry import find_engine, split_engine
from harness.golden.comparable import require_comparable
from harness.golden.store import Golden, find_golden, load_golden
from harness.golden.verify import changed_files
from harness.pair.pair import Pair, load_prompts
from harness.pair.prompts import Prompt

__all__ = ["CheckResult", "check", "golden_in_use"]


@dataclass(frozen=True)
class CheckResult:
    """A pair gated against its golden.

    Attributes:
        measurement: The pair's rates.
        golden: The golden that they were compared with.
        findings: Each detector's answer, in the pipeline's order.
        notes: Remarks that decide nothing.
        attribution: The first stage at which the run differs from the golden.
    """

    measurement: Measurement
    golden: Golden
    findings: Findings
    notes: tuple[str, ...]
    attribution: Attribution | None = None

    @property
    def pair(self) -> Pair:
        """The pair."""
        return self.measurement.pair

    @property
    def verdict(self) -> State:
        """The verdict over all detectors."""
        states = [finding.state for finding in self.findings.values()]
        return verdict(states, strict=self.pair.settings.gate.strict)

    @property
    def exit_code(self) -> int:
        """The command line's status."""
        return exit_code(self.verdict, strict=self.pair.settings.gate.strict)

    @property
    def drop(self) -> PairedInterval | None:
        """The drop of the acceptance rate with its bounds; `None` if no verify round, or only sums were measured."""
        figures = self.findings.acceptance.figures
        return figures.drop if isinstance(figures, AcceptanceFigures) else None


def check(pair: Pair, *, prompts: str | None = None, progress: Progress = SILENT) -> CheckResult:
    """Measure a pair and gate it against its golden.

    Args:
        pair: The pair.
        prompts: `--prompts`: the first N, or ids separated by commas; all where it is `None`.
        progress: Where to tell how far it is.

    Raises:
        HarnessError: The pair cannot be run as stated, or there is no golden it could be compared with.
    """
    start = time.perf_counter()
    golden = load_golden(golden_in_use(pair))
    chosen = load_prompts(pair, prompts)
    require_comparable(golden, pair, chosen, subset=prompts is not None)
    if unservable(pair):
        return _not_started(pair, golden, time.perf_counter() - start)
    texts = {prompt.id: _text(golden, prompt) for prompt in chosen}
    run = find_engine(pair.settings.engine.name).run(pair, chosen, texts, progress)
    require_finite(pair, run.records)
    context = Context(pair, run, golden)
    findings = run_detectors(context)
    first = attribute(context, findings)
    return CheckResult(Measurement(pair, run, time.perf_counter() - start), golden, findings, _notes(context), first)


def _not_started(pair: Pair, golden: Golden, seconds: float) -> CheckResult:
    """Return the result for a pair on which an engine would die: what its files say of it, and nothing measured."""
    engine = pair.settings.engine
    run = Run(engine.name, engine.device, engine.dtype, pair.settings.decode.num_steps, ())
    context = Context(pair, run, golden)
    why: Finding[Any] = Finding(State.NOT_MEASURED, "the engine was not started: by the contract it would die")
    findings = Findings(**dict.fromkeys(DETECTORS, why) | {"contract": contract.detect(context)})
    return CheckResult(Measurement(pair, run, seconds), golden, findings, _notes(context))


def golden_in_use(pair: Pair) -> Path:
    """Return the golden that a check of the pair compares with.

    Raises:
        InputError: There is none.
    """
    engine, _ = split_engine(pair.settings.engine.name)
    device = pair.settings.engine.device.partition(":")[0]
    return find_golden(pair, f"{engine}-{device}-{pair.settings.engine.dtype}")


def _text(golden: Golden, prompt: Prompt) -> tuple[int, ...]:
    return tuple(int(token) for token in golden.tensors[prompt.id].continuation)


def _notes(context: Context) -> tuple[str, ...]:
    """Tell what the comparison crosses and what has changed since the golden was recorded."""
    notes = list(context.run.notes)
    if not context.same_class:
        notes.append(
            f"the golden was recorded on {context.golden.device_class}, this run is {context.run.device_class}: "
            f"compared with the margin of {context.pair.settings.gate.margin:.3f}"
        )
    if context.pair.settings.gate.floor < context.golden.document.floor:
        notes.append(
            f"the pair file's floor {context.pair.settings.gate.floor:.2f} is lower than the recorded "
            f"{context.golden.document.floor:.2f}, which holds until the golden is recorded again with a reason"
        )
    return (*notes, *changed_files(context.pair, context.golden))
