"""Checking a pair: it is measured and gated against its golden."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.commands.measure import SILENT, Measurement, require_finite
from harness.counts.run import Run
from harness.counts.statistics import PairedInterval
from harness.detectors import DETECTORS, Context, Finding, Findings, State, contract, run_detectors
from harness.detectors.acceptance import AcceptanceFigures
from harness.detectors.attribution import (
    NOT_SAMPLED,
    Attribution,
    attribute,
    attribute_again,
    positions_to_sample,
)
from harness.detectors.contract import not_run
from harness.detectors.gate import UNDECIDED, exit_code, verdict
from harness.engines.base import Continuations, Progress
from harness.engines.registry import find_engine, find_sampler
from harness.golden.comparable import recorded_prompts, require_comparable
from harness.golden.find import golden_in_use
from harness.golden.golden_class import GoldenClass
from harness.golden.provenance import changed_files, changed_versions
from harness.golden.store import Golden, load_golden
from harness.pair.pair import Pair
from harness.pair.prompts import Prompt

__all__ = ["CheckResult", "check"]


@dataclass(frozen=True)
class CheckResult:
    """A pair gated against its golden.

    Attributes:
        measurement: The pair and its run.
        golden: The golden that the run was compared with.
        findings: Each detector's answer by name, in the order of the pipeline.
        notes: Sentences worth reading that do not decide anything.
        attribution: The first stage at which the run differs from the golden.
    """

    measurement: Measurement
    golden: Golden
    findings: Findings
    notes: tuple[str, ...]
    attribution: Attribution | None = None

    @property
    def pair(self) -> Pair:
        """The pair as it was run."""
        return self.measurement.pair

    @property
    def verdict(self) -> State:
        """The verdict over all detectors."""
        return verdict(finding.state for finding in self.findings.values())

    @property
    def exit_code(self) -> int:
        """The exit status of the command line."""
        states = [finding.state for finding in self.findings.values()]
        return exit_code(states, strict=self.pair.settings.gate.strict)

    @property
    def undecided(self) -> tuple[str, ...]:
        """The detectors that apply and could not decide."""
        return tuple(name for name, finding in self.findings.items() if finding.state in UNDECIDED)

    @property
    def drop(self) -> PairedInterval | None:
        """The drop of the acceptance rate with its bounds; `None` if no verify round, or only sums were measured."""
        figures = self.findings.acceptance.figures
        return figures.drop if isinstance(figures, AcceptanceFigures) else None


def check(pair: Pair, *, prompts: str | None = None, progress: Progress = SILENT) -> CheckResult:
    """Measure a pair and gate it against its golden.

    Args:
        pair: The pair to run, with its engine settings.
        prompts: The value of `--prompts`: the first N, or ids separated by commas; `None` means all.
        progress: Is called as the engine advances.

    Raises:
        HarnessError: The pair cannot be run as stated, or it does not have a golden that it can be compared with.
    """
    start = time.perf_counter()
    golden = load_golden(golden_in_use(pair))
    chosen = recorded_prompts(golden, pair, prompts)
    require_comparable(golden, pair, chosen, subset=prompts is not None)
    why = not_run(pair)
    if why is not None:
        return _not_started(pair, golden, why, time.perf_counter() - start)
    texts = {prompt.id: golden.continuation(prompt.id) for prompt in chosen}
    run = find_engine(pair.settings.engine.name).run(pair, chosen, texts, progress)
    require_finite(pair, run.records)
    context = Context(pair, run, golden)
    findings = run_detectors(context)
    first = attribute(context, findings)
    if first is not None and first.stage == NOT_SAMPLED:
        first = _sampled_again(context, chosen, texts) or first
    return CheckResult(Measurement(pair, run, time.perf_counter() - start), golden, findings, _notes(context), first)


def _sampled_again(context: Context, prompts: Sequence[Prompt], texts: Continuations) -> Attribution | None:
    """Run again, on few prompts, with states sampled where the proposals changed; `None` if the engine cannot."""
    sampler, at = find_sampler(context.pair.settings.engine.name), positions_to_sample(context)
    if sampler is None or not at:
        return None
    some = [prompt for prompt in prompts if prompt.id in at]
    return attribute_again(context, sampler.sample(context.pair, some, texts, at))


def _not_started(pair: Pair, golden: Golden, why: str, seconds: float) -> CheckResult:
    """Return the result for a pair that no engine is started for: the contract's finding, without a measurement."""
    engine = pair.settings.engine
    run = Run(engine.name, engine.device, engine.dtype, pair.settings.decode.num_steps, ())
    context = Context(pair, run, golden)
    nothing: Finding[Any] = Finding(State.NOT_MEASURED, why)
    findings = Findings(**dict.fromkeys(DETECTORS, nothing) | {"contract": contract.detect(context)})
    return CheckResult(Measurement(pair, run, seconds), golden, findings, _notes(context))


def _notes(context: Context) -> tuple[str, ...]:
    """Return notes on a comparison across classes, a lowered floor, and files that have changed since the record."""
    notes = list(context.run.notes)
    if not context.same_class:
        notes.append(
            f"the golden was recorded on {context.golden.golden_class}, this run is {GoldenClass.of_run(context.run)}: "
            f"compared with the margin of {context.pair.settings.gate.margin:.3f}"
        )
    if context.pair.settings.gate.floor < context.golden.document.floor:
        notes.append(
            f"the pair file's floor {context.pair.settings.gate.floor:.2f} is lower than the recorded "
            f"{context.golden.document.floor:.2f}, which holds until the golden is recorded again with a reason"
        )
    if "strict" not in context.pair.settings.gate.model_fields_set:
        notes.append(
            "gate.strict is not set, and is true: a change that costs no acceptance fails. Set it in the pair file, to "
            "false if such a change is to be a warning"
        )
    if context.golden.document.schema_version == 1:
        notes.append(
            "the golden is of version 1, which does not say which ids end a text: recording it again adds them"
        )
    left_out = [prompt.id for prompt in context.golden.document.left_out]
    if left_out:
        notes.append(f"{len(left_out)} prompts were left out when the golden was recorded: {', '.join(left_out)}")
    changed = (changed_versions(context.run.versions, context.golden), changed_files(context.pair, context.golden))
    return (*notes, *(sentence for sentences in changed for sentence in sentences))
