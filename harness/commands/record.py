"""Recording a golden, and the checks that refuse a misleading one."""

from __future__ import annotations

import datetime
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from harness.commands.kept_texts import KeptTexts
from harness.commands.measure import SILENT, Measurement
from harness.commands.worthy import Standards
from harness.counts.acceptance import acceptance_of
from harness.counts.chains import known_chains
from harness.counts.run import PromptRecord
from harness.detectors import DETECTORS, unfed
from harness.detectors.base import Context, State
from harness.detectors.contract import broken_contract
from harness.engines.base import NoiseSample, Progress, Recording
from harness.engines.registry import find_recorder
from harness.errors import InputError
from harness.files import require_writable
from harness.golden.comparable import target_shape
from harness.golden.find import recording_file
from harness.golden.golden_class import GoldenClass
from harness.golden.provenance import commit_of, machine_info, pair_hashes
from harness.golden.same_name import require_own_golden
from harness.golden.schema import (
    SCHEMA_VERSION,
    Blindness,
    GoldenDocument,
    GoldenPrompt,
    HistoryEntry,
    Noise,
    NoiseArm,
    Totals,
    WiringEntry,
)
from harness.golden.store import Golden, load_golden, save_golden
from harness.golden.tensors import GoldenTensors, pack_tensors, tensors_name
from harness.pair.builtin import builtin_root, is_checkout
from harness.pair.pair import Pair, load_prompts

__all__ = ["RecordResult", "record"]


@dataclass(frozen=True)
class RecordResult:
    """A golden that has just been written.

    Attributes:
        measurement: The pair and the run that was recorded.
        golden: As it was written to its file.
        replaced: Whether it replaced an earlier golden.
        resumed: Number of continuations that an earlier attempt had decoded.
    """

    measurement: Measurement
    golden: Golden
    replaced: bool
    resumed: int = 0

    @property
    def file(self) -> Path:
        """The golden's JSON."""
        return self.golden.file

    @property
    def unfed(self) -> tuple[str, ...]:
        """The detectors that the golden does not feed."""
        return tuple(unfed(self.golden))

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about how it was recorded and what it can be used for."""
        document = self.golden.document
        notes = [*self.measurement.run.notes]
        if self.resumed:
            notes.append(f"{self.resumed} continuations had been decoded by an earlier attempt")
        if document.left_out:
            names = ", ".join(prompt.id for prompt in document.left_out)
            notes.append(f"{len(document.left_out)} prompts were left out, as their continuations are loops: {names}")
        if document.blindness is None:
            notes.append("that a wrong boundary can be seen was not checked: this engine cannot replay one")
        if self.unfed:
            notes.append(
                f"this golden does not feed {', '.join(self.unfed)}: its engine does not know what they compare"
            )
        return tuple(notes)


def record(
    pair: Pair, *, reason: str | None = None, skip_loops: bool = False, progress: Progress = SILENT
) -> RecordResult:
    """Measure a pair and write its golden.

    Args:
        pair: The pair to record, with its engine settings; they determine the golden's class.
        reason: Why the golden changes; required if one is replaced.
        skip_loops: Whether prompts whose continuation is a loop are left out, instead of refusing the record.
        progress: Is called as the engine advances.

    Raises:
        HarnessError: The pair cannot be run as stated, or its golden would be misleading.
    """
    recorder = find_recorder(pair.settings.engine.name)
    file = recording_file(pair)
    _require_own_place(pair, file)
    before = load_golden(file) if os.path.lexists(file) else None
    _require_reason(pair, before, reason)
    require_writable(file.parent)
    _require_contract(pair)
    prompts = load_prompts(pair)
    hashes = pair_hashes(pair)
    versions = recorder.text_versions()
    kept = None if versions is None else KeptTexts(pair, hashes, versions)
    guide = Standards(pair, len(prompts), skip_loops=skip_loops, kept=kept)
    start = datetime.datetime.now(datetime.UTC)
    made = recorder.record(pair, prompts, guide, progress)
    _require_steady(pair, made)
    seconds = (datetime.datetime.now(datetime.UTC) - start).total_seconds()
    measurement = Measurement(pair, made.run, seconds)
    parts = [_tensors(entry, pair) for entry in made.run.records]
    tensors = pack_tensors(parts, GoldenClass.of_run(made.run).file.removesuffix(".json"))
    document = _document(measurement, before, reason, made, tensors_name(tensors)).model_copy(
        update={"hashes": hashes, "left_out": guide.left_out, "pair_file": _relative(pair.file, file.parent)}
    )
    golden = Golden(file, document, {entry.id: part for entry, part in zip(made.run.records, parts, strict=True)})
    golden = replace(golden, document=_require_sight(pair, made, golden))
    save_golden(file, golden.document, tensors)
    if kept is not None:
        kept.forget()
    return RecordResult(measurement, golden, before is not None, guide.resumed)


def _relative(file: Path, folder: Path) -> str | None:
    """Return a pair file's path as seen from a golden's folder; `None` if there is no way from one to the other."""
    try:
        return Path(os.path.relpath(file.resolve(), folder.resolve())).as_posix()
    except ValueError:
        # They are on two drives.
        return None


def _require_own_place(pair: Pair, file: Path) -> None:
    """Refuse to overwrite what belongs to the installation, or to another pair file of the same name."""
    shipped = builtin_root()
    if not is_checkout(shipped) and file.resolve().is_relative_to(shipped.resolve()):
        raise InputError(
            "the golden of a built-in pair belongs to the installation, and is not recorded there",
            file=file,
            expected="a copy of the built-in pairs that is yours",
            next_step=f"copy them, cp -r {shipped} my-pairs, and record the copy: "
            f"harness record my-pairs/{pair.file.resolve().relative_to(shipped.resolve()).as_posix()}",
        )
    require_own_golden(pair.file, pair.settings, file)


def _require_sight(pair: Pair, made: Recording, golden: Golden) -> GoldenDocument:
    """Add the detectors that see every boundary moved by one; refuse a golden by which none of them sees it."""
    if made.shifted is None:
        return golden.document
    context = Context(pair, made.shifted, golden)
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
    return golden.document.model_copy(update={"blindness": sight})


def _require_steady(pair: Pair, made: Recording) -> None:
    """Refuse an engine that differs from itself by more than the gate lets pass: no check of it could be believed.

    Counts are compared and not texts: near-ties may well turn out differently in another batch.
    """
    rates = [rate for run in (made.run, *made.again) if (rate := acceptance_of(run).rate) is not None]
    margin = pair.settings.gate.margin
    if len(rates) > 1 and max(rates) - min(rates) > margin:
        raise InputError(
            "the engine differs from itself by more than the margin of the gate",
            file=pair.file,
            key="gate.margin",
            found="; ".join(f"rate {rate:.4f} {how}" for rate, how in zip(rates, made.runs, strict=False)),
            expected=f"rates that differ by at most {margin:.4f}",
            next_step="measure when no other client uses it, add prompts, or set gate.margin above the difference",
        )


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


def _tensors(entry: PromptRecord, pair: Pair) -> GoldenTensors:
    chains = known_chains(entry, pair.limits.starts(entry.continuation), pair.limits.num_steps)
    return GoldenTensors(
        np.asarray(entry.continuation, np.int32),
        None if chains is None else chains.astype(np.int32),
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
        hashes={},
        totals=Totals(
            prompts=acceptance.prompts,
            rounds=acceptance.rounds,
            accepted=acceptance.accepted,
            proposed=acceptance.proposed,
            rate=acceptance.rate,
            length=acceptance.length,
        ),
        noise={dtype: Noise(arms=[_arm(sample) for sample in samples]) for dtype, samples in made.noise.items()},
        blindness=None,
        prompts=[
            GoldenPrompt(
                **GoldenPrompt.row(entry),
                tokens=entry.prompt_tokens,
                output=len(entry.continuation),
                again=[list(other.records[index].histogram) for other in made.again],
            )
            for index, entry in enumerate(run.records)
        ],
        tensors=tensors,
        history=_history(before),
        eos_ids=sorted(pair.target.eos_ids),
        revisions=pair.revisions,
        runs=list(made.runs),
    )


def _arm(sample: NoiseSample) -> NoiseArm:
    changed, windows = map(sum, zip(*sample.by_prompt, strict=True))
    return NoiseArm(
        how=sample.how,
        windows=windows,
        changed=changed,
        by_prompt=[list(counts) for counts in sample.by_prompt],
        likelihood=sample.likelihood,
        drifted=sample.drifted,
        evaluated=sample.evaluated,
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
