"""Measure, check, record: the one path that the command line and the pytest plugin call."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from harness.acceptance import Acceptance, acceptance_of, counts_of, loop_share, measure_acceptance
from harness.attribution import Attribution, attribute
from harness.baseline.comparable import require_comparable
from harness.baseline.store import Golden, find_golden, load_golden
from harness.baseline.verify import changed_files
from harness.detectors import DETECTORS, Context, Finding, State, run_detectors
from harness.detectors.contract import unservable
from harness.engines.base import Progress
from harness.engines.registry import as_served, find_engine, split_engine
from harness.errors import InputError
from harness.gate import exit_code, verdict
from harness.pair.pair import Pair, load_pair, load_prompts
from harness.pair.pairfile import Dtype
from harness.pair.prompts import Prompt
from harness.record import PromptRecord, Run

__all__ = ["CheckResult", "Measurement", "check", "golden_in_use", "looping", "measure", "prepare", "require_finite"]

_SILENT = Progress()


@dataclass(frozen=True)
class Measurement:
    """A pair's rates, without a verdict.

    Attributes:
        pair: The pair.
        run: What the engine returned.
        seconds: Wall-clock time, loading included.
    """

    pair: Pair
    run: Run
    seconds: float

    @property
    def acceptance(self) -> Acceptance:
        """Acceptance over all prompts."""
        return acceptance_of(self.run)

    def by_category(self) -> dict[str, Acceptance]:
        """Return the acceptance of each category of prompts; none where only sums over all are known."""
        if self.run.aggregate is not None:
            return {}
        categories = sorted({record.category for record in self.run.records})
        return {
            name: measure_acceptance(counts_of(record) for record in self.run.records if record.category == name)
            for name in categories
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the object printed by `--json`."""
        return {
            "pair": self.pair.name,
            "engine": self.run.describe(),
            "boundaries": list(self.pair.boundaries),
            "acceptance": self.acceptance.to_dict(),
            "categories": {name: value.to_dict() for name, value in self.by_category().items()},
            "loops": looping(self.run.records),
            "prompts": [_prompt_row(record) for record in self.run.records],
            **({"aggregate": list(self.run.aggregate)} if self.run.aggregate is not None else {}),
            **({"server": dict(self.run.served)} if self.run.served else {}),
            **({"notes": list(self.run.notes)} if self.run.notes else {}),
            "seconds": round(self.seconds, 3),
        }


def _prompt_row(record: PromptRecord) -> dict[str, Any]:
    """Return one prompt's counts, from which any rate can be worked out anew."""
    counts = counts_of(record)
    return {
        "id": record.id,
        "category": record.category,
        "hash": record.prompt_hash,
        "histogram": list(counts.histogram),
        "eos_round": None if record.eos_round is None else [record.eos_round.proposed, record.eos_round.accepted],
        "hits": None if counts.hits is None else list(counts.hits),
        "positions": None if counts.positions is None else list(counts.positions),
    }


# Share of repeated 8-grams above which a continuation counts as a loop.
_LOOP_LIMIT = 0.5


def looping(records: Sequence[PromptRecord]) -> list[str]:
    """Return the ids of prompts whose continuation is a loop, which inflates acceptance."""
    return [record.id for record in records if loop_share(record.output_ids) > _LOOP_LIMIT]


@dataclass(frozen=True)
class CheckResult:
    """A pair gated against its golden.

    Attributes:
        measurement: The rates.
        golden: What they were compared with.
        findings: Each detector's answer, in the pipeline's order.
        notes: What is worth telling and decides nothing.
        attribution: The first stage at which the run parts from the golden.
    """

    measurement: Measurement
    golden: Golden
    findings: Mapping[str, Finding]
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
    def drop(self) -> dict[str, Any] | None:
        """The drop of the acceptance rate with its bounds."""
        drop = self.findings["acceptance"].figures.get("drop")
        return dict(drop) if drop else None

    def to_dict(self) -> dict[str, Any]:
        """Return the object printed by `--json`."""
        body = self.measurement.to_dict()
        seconds = body.pop("seconds")
        return {
            "verdict": str(self.verdict),
            **body,
            "detectors": {name: finding.to_dict() for name, finding in self.findings.items()},
            "drop": self.drop,
            "first_stage": None if self.attribution is None else self.attribution.to_dict(),
            "golden": str(self.golden.file),
            "notes": list(self.notes),
            "seconds": seconds,
        }


def prepare(
    name: str | Path,
    *,
    engine: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    num_steps: int | None = None,
    endpoint: str | None = None,
    plain_endpoint: str | None = None,
) -> Pair:
    """Read a pair and apply the command line's choices.

    Args:
        name: Path of a pair file, or the name of a built-in pair.
        engine: Its engine, for the pair file's.
        dtype: What to compute in.
        device: Where.
        num_steps: Chain length.
        endpoint: The address of a running server, which is then the engine.
        plain_endpoint: That of a server without speculation, which then judges the output.

    Raises:
        InputError: The pair or a choice cannot be used.
        EngineError: A server fails.
    """
    pair = load_pair(name)
    if num_steps is not None:
        pair = pair.with_steps(num_steps)
    if dtype is not None and dtype not in get_args(Dtype):
        raise InputError("no such dtype", key="--dtype", found=dtype, expected=" or ".join(get_args(Dtype)))
    if engine is None:
        split_engine(pair.settings.engine.name, file=pair.file, key="engine.name")
    else:
        split_engine(engine, key="--engine")
    asked = {key: value for key, value in {"dtype": dtype, "device": device}.items() if value is not None}
    # What a pair file says of device and dtype is said of its own engine.
    stated = set(asked)
    if pair.settings.engine.name == "server":
        stated |= {"dtype", "device"} & pair.settings.engine.model_fields_set
    pair = pair.with_engine(**asked, **_engine(pair, engine, endpoint, plain_endpoint))
    return as_served(pair, stated)


def _engine(pair: Pair, engine: str | None, endpoint: str | None, plain_endpoint: str | None) -> dict[str, str]:
    """Return the engine and its addresses as far as they were chosen: an address names the engine.

    Raises:
        InputError: An address was given to another engine, or none to a server.
    """
    chosen = {"name": engine, "endpoint": endpoint, "plain_endpoint": plain_endpoint}
    if endpoint is not None and engine is None:
        chosen["name"] = "server"
    name = chosen["name"] or pair.settings.engine.name
    for option, value in (("--endpoint", endpoint), ("--plain-endpoint", plain_endpoint)):
        if value is not None and name != "server":
            raise InputError(
                "this engine asks no server",
                key=option,
                found=f"{value}, and the engine {name}",
                expected="the engine server, or no such option",
            )
    if name == "server" and not (pair.settings.engine.endpoint if endpoint is None else endpoint):
        raise InputError(
            "the engine server needs the address of one",
            file=pair.file,
            key="engine.endpoint or --endpoint",
            found="none",
            expected="http://host:port",
        )
    return {key: value for key, value in chosen.items() if value is not None}


def measure(pair: Pair, *, prompts: str | None = None, progress: Progress = _SILENT) -> Measurement:
    """Measure a pair's acceptance on text that it decodes itself.

    Args:
        pair: The pair.
        prompts: `--prompts`: the first N, or ids separated by commas; all where it is `None`.
        progress: Where to tell how far it is.

    Raises:
        HarnessError: The pair cannot be run as stated.
    """
    start = time.perf_counter()
    run = find_engine(pair.settings.engine.name).run(pair, load_prompts(pair, prompts), None, progress)
    require_finite(pair, run.records)
    return Measurement(pair, run, time.perf_counter() - start)


def check(pair: Pair, *, prompts: str | None = None, progress: Progress = _SILENT) -> CheckResult:
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
    why = Finding(State.NOT_MEASURED, "the engine was not started: by the contract it would die")
    findings = {name: detect(context) if name == "contract" else why for name, detect in DETECTORS.items()}
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
    return tuple(int(token) for token in golden.tensors[prompt.id].text)


def require_finite(pair: Pair, records: Sequence[PromptRecord]) -> None:
    """Refuse NaN: its argmax always agrees, and acceptance would look perfect."""
    for record in records:
        if record.hits is None or record.logprobs is None:
            continue
        # Replay writes NaN outside the position set and minus infinity for whatever was computed and is not finite.
        if bool(np.isinf(record.logprobs).any()):
            raise InputError(
                "the pair computes values that are not finite",
                file=pair.file,
                key=f"prompt {record.id!r}",
                expected="finite log-probabilities",
                next_step='try engine.dtype = "float32"; float16 overflows first',
            )


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
