"""Recording a golden, and the checks that refuse a misleading one."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.commands.measure import SILENT, Measurement, looping, require_finite
from harness.counts.acceptance import counts_of, measure_acceptance
from harness.counts.run import PromptRecord
from harness.counts.statistics import rate_interval
from harness.detectors import DETECTORS
from harness.detectors.acceptance import judge_floor
from harness.detectors.base import QUESTIONS, Context, State
from harness.detectors.contract import broken_contract
from harness.engines.base import Progress, Recording
from harness.engines.registry import find_recorder
from harness.errors import InputError
from harness.files import require_writable
from harness.golden.comparable import target_shape
from harness.golden.find import recording_file
from harness.golden.golden_class import GoldenClass
from harness.golden.provenance import commit_of, machine_info, pair_hashes
from harness.golden.schema import (
    SCHEMA_VERSION,
    Blindness,
    GoldenDocument,
    GoldenPrompt,
    HistoryEntry,
    Noise,
    Totals,
    WiringEntry,
)
from harness.golden.store import Golden, load_golden, save_golden
from harness.golden.tensors import GoldenTensors, pack_tensors, tensors_name
from harness.pair.pair import Pair, load_prompts

__all__ = ["RecordResult", "record"]


@dataclass(frozen=True)
class RecordResult:
    """A golden that has just been written.

    Attributes:
        measurement: The pair and the run that was recorded.
        file: The golden's JSON.
        replaced: Whether it replaced an earlier golden.
    """

    measurement: Measurement
    file: Path
    replaced: bool


def record(pair: Pair, *, reason: str | None = None, progress: Progress = SILENT) -> RecordResult:
    """Measure a pair and write its golden.

    Args:
        pair: The pair to record, with its engine settings; they determine the golden's class.
        reason: Why the golden changes; required if one is replaced.
        progress: Is called as the engine advances.

    Raises:
        HarnessError: The pair cannot be run as stated, or its golden would be misleading.
    """
    recorder = find_recorder(pair.settings.engine.name)
    file = recording_file(pair)
    before = load_golden(file) if os.path.lexists(file) else None
    _require_reason(pair, before, reason)
    require_writable(file.parent)
    _require_contract(pair)
    prompts = load_prompts(pair)
    start = datetime.datetime.now(datetime.UTC)
    made = recorder.record(pair, prompts, lambda records: _require_worthy(pair, records), progress)
    seconds = (datetime.datetime.now(datetime.UTC) - start).total_seconds()
    measurement = Measurement(pair, made.run, seconds)
    tensors = pack_tensors(_tensors(entry) for entry in made.run.records)
    document = _document(measurement, before, reason, made, tensors_name(tensors))
    document = _require_sight(pair, made, document, file)
    save_golden(file, document, tensors)
    return RecordResult(measurement, file, before is not None)


def _require_sight(pair: Pair, made: Recording, document: GoldenDocument, file: Path) -> GoldenDocument:
    """Add the detectors that see every boundary moved by one; refuse a golden by which none of them sees it."""
    if made.shifted is None:
        return document
    tensors = {entry.id: _tensors(entry) for entry in made.run.records}
    context = Context(pair, made.shifted, Golden(file, document, tensors))
    seen = [name for name in _SIGHTED if DETECTORS[name](context).state in (State.CHANGED, State.REGRESSION)]
    if not seen:
        raise InputError(
            "the pair is blind: with every boundary moved by one, neither proposals nor likelihood nor acceptance "
            "change beyond their noise",
            file=pair.file,
            key="boundaries",
            found=f"{list(made.shifted_boundaries)} look like {list(pair.boundaries)}",
            expected="a draft that depends on the target's aux hidden states",
            next_step="check that the draft is trained and its fc is loaded; add prompts, or longer continuations",
        )
    sight = Blindness(boundaries=list(made.shifted_boundaries), seen_by=seen)
    return document.model_copy(update={"blindness": sight})


# The detectors that a wrong wire must reach. Stages would see it even if the draft ignored its inputs altogether.
_SIGHTED = ("proposals", "likelihood", "acceptance")


def _require_reason(pair: Pair, before: Golden | None, reason: str | None) -> None:
    if before is None or (reason and reason.strip()):
        return
    floor, recorded = pair.settings.gate.floor, before.document.floor
    problem = (
        f"the floor would be lowered from {recorded} to {floor} without a reason"
        if floor < recorded
        else "a golden is already recorded, and replacing it requires a reason"
    )
    raise InputError(
        problem,
        file=before.file,
        key="--reason",
        expected="the reason why the golden changes",
        next_step=f'harness record {pair.file} --reason "…"',
    )


def _require_contract(pair: Pair) -> None:
    problems = broken_contract(pair)
    if problems:
        raise InputError(
            f"the contract is broken: {problems[0]}",
            file=pair.file,
            next_step="correct the wiring first: a golden of it would make the fault the standard",
        )


def _require_worthy(pair: Pair, records: Sequence[PromptRecord]) -> None:
    """Refuse runs that no golden may record: empty, NaN, loops, a dead position, a floor that chance would decide."""
    require_finite(pair, records)
    gate = pair.settings.gate
    counts = [counts_of(entry) for entry in records]
    acceptance = measure_acceptance(counts)
    rate = rate_interval(
        [entry.accepted for entry in counts], [entry.proposed for entry in counts], gate.alpha / QUESTIONS
    )
    if rate is None:
        raise InputError(
            "nothing was measured: not one verify round was counted",
            file=pair.file,
            key="decode.max_new_tokens",
            next_step="raise decode.max_new_tokens",
        )
    loops = looping(records)
    if loops:
        raise InputError(
            "some continuations are loops, which inflate acceptance",
            file=pair.prompts_file,
            key="id",
            found=f"{len(loops)} of {len(records)}: {', '.join(loops[:5])}",
            next_step="remove these prompts, or shorten decode.max_new_tokens",
        )
    dead = [step for step, value in enumerate(acceptance.step_accuracy) if not value]
    if dead:
        raise InputError(
            "a draft position is dead: there the draft is never right, even with the known continuation as its input",
            file=pair.file,
            key=f"step {dead[0]}",
            found="step accuracy 0",
            next_step=f"check the wiring with harness trace {pair.file}",
        )
    state = judge_floor(rate, gate.floor)
    if state is not State.PASS:
        raise InputError(
            "the acceptance rate is below the floor"
            if state is State.REGRESSION or rate.estimate < gate.floor
            else "the floor is so close to the rate that chance would decide",
            file=pair.file,
            key="gate.floor",
            found=f"rate {rate.estimate:.4f} [{rate.low:.4f}, {rate.high:.4f}]",
            expected=f"an interval entirely above the floor {gate.floor}",
            next_step="correct the pair, add prompts, or set gate.floor below the interval",
        )


def _tensors(entry: PromptRecord) -> GoldenTensors:
    return GoldenTensors(
        np.asarray(entry.continuation, np.int32),
        None if entry.proposals is None else entry.proposals.astype(np.int32),
        entry.logprobs,
        entry.sketches,
    )


def _document(
    measurement: Measurement, before: Golden | None, reason: str | None, made: Recording, tensors: str
) -> GoldenDocument:
    pair, run, acceptance = measurement.pair, measurement.run, measurement.acceptance
    assert acceptance.rate is not None
    assert acceptance.length is not None
    golden_class = GoldenClass.of_run(run)
    return GoldenDocument(
        schema_version=SCHEMA_VERSION,
        pair=pair.name,
        recorded_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        reason=reason or "first record",
        engine=golden_class.engine,
        device=golden_class.device,
        dtype=golden_class.dtype,
        floor=pair.settings.gate.floor,
        target=target_shape(pair),
        wiring=WiringEntry(
            ids=list(pair.wiring.trained.ids),
            ids_key=pair.draft.ids_key,
            trained_as=pair.wiring.trained.convention,
            served_by=pair.settings.served_by,
            boundaries=list(pair.boundaries),
        ),
        decode=pair.settings.decode.comparable(),
        versions=dict(run.versions),
        machine=machine_info(),
        commit=commit_of(pair.file.parent),
        hashes=pair_hashes(pair),
        totals=Totals(
            prompts=acceptance.prompts,
            rounds=acceptance.rounds,
            accepted=acceptance.accepted,
            proposed=acceptance.proposed,
            rate=acceptance.rate,
            length=acceptance.length,
        ),
        noise={
            dtype: Noise(windows=sample.windows, changed=sample.changed, likelihood=sample.likelihood, how=sample.how)
            for dtype, sample in made.noise.items()
        },
        blindness=None,
        prompts=[
            GoldenPrompt(**GoldenPrompt.row(entry), tokens=entry.prompt_tokens, output=len(entry.continuation))
            for entry in run.records
        ],
        tensors=tensors,
        history=_history(before),
    )


def _history(before: Golden | None) -> list[HistoryEntry]:
    if before is None:
        return []
    old = before.document
    entry = HistoryEntry(
        recorded_at=old.recorded_at,
        reason=old.reason,
        floor=old.floor,
        rate=old.totals.rate,
        length=old.totals.length,
        prompts=old.totals.prompts,
        standard_error=old.acceptance.errors["rate"],
    )
    return [*old.history, entry]
