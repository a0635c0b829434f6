"""The pipeline of a pair's aux hidden states, step by step, which an engineer would trace by hand through an engine.

Each step has its value, its source, and whether it agrees with the steps before it. The static steps do not need
weights; the others run one prompt through the pair's engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.commands.prepare import prepare
from harness.counts.rounds import accepted_prefix
from harness.engines.base import Probe, Resolved, StateView
from harness.engines.registry import find_prober
from harness.errors import InputError
from harness.facts.conventions import newest
from harness.facts.flags import FLAGS
from harness.facts.layer_ids import Reading, states_text
from harness.files import shown
from harness.golden.find import golden_in_use
from harness.golden.store import Golden, load_golden
from harness.models.checkpoint import has_weights, weight_files
from harness.models.draft_contract import check_headers, expected_tensors
from harness.pair.draft_flags import said
from harness.pair.draft_spec import describe_draft
from harness.pair.layer_config import LayerConfig
from harness.pair.outline import PairOutline, read_outline
from harness.pair.pair import Pair, load_prompts
from harness.pair.wiring import Readings

__all__ = ["Step", "Trace", "trace", "trace_run", "trace_static"]


@dataclass(frozen=True)
class Step:
    """One step of the pipeline.

    Attributes:
        name: The name of the step.
        value: Its value, ready for JSON.
        source: The file and key, or the rule, that the value comes from.
        ok: Whether it agrees with the steps before it; `None` if there is nothing to compare it with.
        note: What is wrong, or worth knowing.
    """

    name: str
    value: Any
    source: str
    ok: bool | None = None
    note: str | None = None


@dataclass(frozen=True)
class Trace:
    """A pair's pipeline.

    Attributes:
        pair: The pair's name.
        steps: The steps, in the order in which states pass them.
    """

    pair: str
    steps: tuple[Step, ...]

    @property
    def first_wrong(self) -> Step | None:
        """The first step that does not agree with those before it."""
        return next((step for step in self.steps if step.ok is False), None)

    @property
    def exit_code(self) -> int:
        """The command line's status."""
        return 0 if self.first_wrong is None else 1


def trace(name_or_path: str, *, engine: str | None = None, static: bool = False) -> Trace:
    """Trace a pair: from its configs, and if they agree, with one prompt through its engine.

    Args:
        name_or_path: Path of a pair file, or the name of a built-in pair.
        engine: The engine to look into; the pair file's if `None`.
        static: Whether to stop after the configs.

    Raises:
        HarnessError: A file cannot be read, the writer of the layer ids is not known, or the pair cannot be run.
    """
    outline = read_outline(name_or_path)
    # The configs first: if they do not agree, the pair cannot be prepared for an engine.
    result = trace_static(outline)
    if static or result.first_wrong is not None:
        return result
    ready = prepare(outline, engine=engine)
    # Again, since the engine reads the ids by its own release, which the pair file need not name.
    result = trace_static(ready.outline)
    return result if result.first_wrong is not None else trace_run(result, ready)


def trace_static(outline: PairOutline) -> Trace:
    """Trace a pair from its configs alone.

    Raises:
        InputError: The pair file does not say who wrote the layer ids, or a flag of the draft is not usable.
    """
    target, config, settings = outline.target, outline.layers, outline.settings
    readings = outline.readings()
    steps = [
        Step(
            "target",
            {"architecture": target.architecture, "layers": target.num_layers, "hidden_size": target.hidden_size},
            shown(target.path / "config.json"),
        ),
        Step(
            "layer ids",
            None if config.ids is None else list(config.ids),
            f"{shown(config.file)}: {config.key or 'no such key'} ({config.family.name})",
        ),
        _reading_step("trained as", outline.trained_as, readings.trained),
    ]
    if settings.served_by is not None:
        steps.append(_served_step(settings.served_by, readings))
    steps.append(_flags_step(config, readings, served=settings.served_by is not None))
    steps += _widths(outline, readings)
    steps += _tensors_steps(config, readings)
    return Trace(settings.name, tuple(steps))


def _reading_step(name: str, convention: str, reading: Reading | InputError) -> Step:
    if isinstance(reading, InputError):
        return Step(name, None, newest(convention), ok=False, note=reading.problem)
    default = "its default, " if reading.defaulted else ""
    return Step(
        name,
        list(reading.boundaries),
        f"{reading.convention}: {default}{reading.rule} ({reading.source})",
        # A writer's own reading has nothing to agree with, unless it loses some of the ids. A fault of the engine that
        # the numbering is named after does not change the boundaries that the ids mean.
        ok=False if reading.lost else None,
        note="; ".join(reading.remarks) or None,
    )


def _served_step(name: str, readings: Readings) -> Step:
    trained, served = readings.trained, readings.served
    step = _reading_step("served by", name, served)
    if isinstance(served, InputError):
        return step
    notes = [note for note in (step.note, readings.overlooked) if note is not None]
    agrees = not isinstance(trained, InputError) and served.captured == trained.boundaries
    if not agrees and not isinstance(trained, InputError):
        notes.append(f"trained on boundaries {list(trained.boundaries)}, served {states_text(served.captured)}")
    return Step(step.name, list(served.captured), step.source, ok=agrees, note="; ".join(notes) or None)


def _flags_step(config: LayerConfig, readings: Readings, *, served: bool) -> Step:
    """Return the draft's flags as they are acted on, next to what they were trained as."""
    trained, flags = readings.trained_flags, readings.served_flags
    if flags is None or trained is None:
        return Step(
            "flags",
            None,
            shown(config.file),
            note="not read: absent flags take the defaults of a convention that is not known",
        )
    differing = trained.differing(flags)
    notes = [f"{name}: trained as {said(trained.values[name])}, {FLAGS[name].does}" for name in differing]
    notes += flags.remarks.values()
    absence = "" if flags.absence is None else f"; {flags.absence}"
    return Step(
        "flags",
        dict(flags.values),
        f"{shown(config.file)}, as {flags.reader} reads it{absence}",
        ok=not differing if served else None,
        note="; ".join(notes) or None,
    )


def _widths(outline: PairOutline, readings: Readings) -> list[Step]:
    """Return the widths of the concatenation and of `fc`, from the configs alone."""
    config, target = outline.layers, outline.target
    trained, served = readings.trained, readings.served
    if isinstance(served, InputError):
        why = "the captured boundaries are not known"
        return [Step("concatenation", None, outline.settings.served_by or "", ok=False, note=why)]
    slots, width = len(served.captured), target.hidden_size
    concatenated = slots * width
    steps = [
        Step(
            "concatenation",
            {"boundaries": list(served.captured), "width": concatenated},
            f"{slots} * {width} ({shown(target.path / 'config.json')}: hidden_size)",
        )
    ]
    if config.target_hidden_size is None:
        return steps
    meant = slots if isinstance(trained, InputError) else len(trained.boundaries)
    expected = meant * config.target_hidden_size
    steps.append(
        Step(
            "fc",
            {"input": expected, "output": config.hidden_size},
            f"{meant} * {config.target_hidden_size} ({shown(config.file)}: target_hidden_size or hidden_size)",
            ok=expected == concatenated,
            note=None if expected == concatenated else f"the captured states are {concatenated} wide",
        )
    )
    return steps


def _tensors_steps(config: LayerConfig, readings: Readings) -> list[Step]:
    """Return the draft's tensors by its config, at true size without memory for them, next to those on disk."""
    trained, served = readings.trained, readings.served
    if readings.trained_flags is None or readings.served_flags is None or isinstance(served, InputError):
        return []
    # If nothing is captured there is no width to compare with: the checkpoint is held to its own training.
    slots = len(served.captured) or (1 if isinstance(trained, InputError) else len(trained.boundaries))
    folder = config.file.parent
    try:
        spec = describe_draft(config, readings.trained_flags)
    except InputError as error:
        return [Step("draft tensors", None, shown(config.file), note=f"not known: {error.key}: {error.problem}")]
    spec = spec.taken_with(readings.trained_flags, readings.served_flags)
    shapes = {name: list(tensor.shape) for name, tensor in expected_tensors(spec, slots).items()}
    value = {"tensors": len(shapes), "fc.weight": shapes.get("fc.weight")}
    if not has_weights(folder):
        return [Step("draft tensors", value, f"{shown(config.file)}; there are no weights to compare with")]
    source = f"{shown(weight_files(folder)[0])}: names and shapes"
    try:
        check_headers(spec, slots)
    except InputError as error:
        why = f"{error.key}: {error.problem}, found {error.found}, expected {error.expected}"
        return [Step("draft tensors", value, source, ok=False, note=why)]
    return [Step("draft tensors", value, source, ok=True)]


def trace_run(static: Trace, pair: Pair) -> Trace:
    """Return a trace that continues with one prompt through the pair's engine.

    Args:
        static: The pair's trace from its configs, whose steps agree.
        pair: The pair, with the settings of the engine to look into.

    Raises:
        HarnessError: The pair cannot be run.
    """
    prompt = load_prompts(pair)[0]
    engine = pair.settings.engine.name
    probe = find_prober(engine).probe(pair, prompt)
    where = f"{engine}, prompt {prompt.id!r}, last of {len(prompt.ids)} tokens"
    steps = [] if probe.resolved is None else _resolved_steps(pair, probe.resolved)
    known = len(probe.slots) == len(pair.boundaries)
    steps += [
        Step(f"captured, slot {slot}", {"boundary": pair.boundaries[slot] if known else None, **_shown(view)}, where)
        for slot, view in enumerate(probe.slots)
    ]
    width = len(pair.boundaries) * pair.target.hidden_size
    fits = probe.concatenated.shape[-1] == width
    steps.append(
        Step(
            "concatenated",
            _shown(probe.concatenated),
            "torch.cat of the slots in this order",
            ok=fits,
            note=None if fits else f"expected {width}, the width of {len(pair.boundaries)} boundaries",
        )
    )
    if probe.received is not None:
        same = probe.received == probe.concatenated
        note = None if same else "differs from the concatenated states of the target"
        steps.append(Step("fc input", _shown(probe.received), "the input of the draft's forward", same, note))
    if probe.fused is not None:
        steps.append(Step("fc output", _shown(probe.fused), f"{shown(pair.draft.path)}: fc.weight"))
    steps.append(_proposals_step(pair, prompt.id, probe.proposals))
    if probe.predicted is not None:
        steps.append(_verification_step(probe))
    return Trace(static.pair, (*static.steps, *steps))


def _resolved_steps(pair: Pair, resolved: Resolved) -> list[Step]:
    """Return the ids that an engine found in the config and its target's capture list, compared with the facts."""
    expected = pair.draft.layers.seen_by(pair.wiring.served.convention)
    found = resolved.ids == expected
    steps = [
        Step(
            "ids resolved",
            None if resolved.ids is None else list(resolved.ids),
            f"{pair.wiring.served.convention}: its own reading of {shown(pair.draft.config_file)}",
            ok=found,
            note=None if found else f"the facts say {None if expected is None else list(expected)}",
        )
    ]
    if resolved.captured is not None:
        agrees = sorted(set(resolved.captured)) == list(pair.wiring.served.boundaries)
        note = None if agrees else f"the facts say {list(pair.wiring.served.boundaries)}"
        source = f"{resolved.model}.layers_to_capture, as its setter left it"
        steps.append(Step("layers to capture", list(resolved.captured), source, agrees, note))
    return steps


def _verification_step(probe: Probe) -> Step:
    assert probe.predicted is not None
    agreeing = accepted_prefix(probe.proposals, probe.predicted)
    value = {"accepted": probe.accepted, "target's choices": list(probe.predicted)}
    ok = agreeing == probe.accepted
    note = None if ok else f"the target chooses the first {agreeing} of the chain"
    return Step("verification", value, "the longest prefix that the target chooses as well", ok, note)


def _shown(view: StateView) -> dict[str, Any]:
    return {"shape": list(view.shape), "norm": round(view.norm, 4), "first": list(view.first)}


def _proposals_step(pair: Pair, prompt: str, proposals: tuple[int, ...]) -> Step:
    """Return the first chain, compared with the golden's if there is one."""
    golden = _golden(pair)
    recorded = None if golden is None or prompt not in golden.tensors else golden.tensors[prompt].proposals
    if golden is None or recorded is None or len(recorded) == 0 or recorded.shape[1] != len(proposals):
        return Step("first proposals", list(proposals), f"{shown(pair.draft.path)}; without a golden to compare with")
    expected = recorded[0].tolist()
    same = list(proposals) == expected
    note = None if same else f"the golden has {expected}: harness check {pair.file} judges it on all positions"
    return Step(
        "first proposals", list(proposals), f"{shown(pair.draft.path)}; compared with {shown(golden.file)}", same, note
    )


def _golden(pair: Pair) -> Golden | None:
    try:
        return load_golden(golden_in_use(pair))
    except InputError:
        return None
