"""Contract: the pair's files, without a forward. Ids and flags as trained and as served, and the vocabulary maps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from harness.detectors.base import Context, Finding, State
from harness.errors import InputError
from harness.facts.flags import FLAGS
from harness.facts.layer_ids import states_text
from harness.models.checkpoint import has_weights, read_headers
from harness.models.draft_contract import by_canonical_name, check_headers
from harness.models.draft_weights import vocabulary_map
from harness.pair.draft_flags import said
from harness.pair.pair import Pair
from harness.pair.wiring import Wiring

__all__ = ["ContractFigures", "broken_contract", "detect", "not_run", "unservable"]


@dataclass(frozen=True)
class ContractFigures:
    """The wiring that a pair's files ask for.

    Attributes:
        boundaries: The boundaries that are captured, in the order of concatenation.
        trained_as: The convention in which the checkpoint's layer ids were written.
        served_by: The engine and version that read them; `None` if they are served as trained.
        flags: The draft's flags by name, as they are acted on.
        flags_absent: Flags that the config does not have, each of which takes its default.
        problems: What would run and be wrong.
    """

    boundaries: tuple[int, ...]
    trained_as: str
    served_by: str | None
    flags: Mapping[str, bool]
    flags_absent: tuple[str, ...]
    problems: tuple[str, ...]


def detect(context: Context) -> Finding[ContractFigures]:
    """Report what would run and be wrong; differences from the golden are notes, which do not decide anything."""
    problems = [*unservable(context.pair), *broken_contract(context.pair)]
    wiring = context.pair.wiring
    figures = ContractFigures(
        boundaries=wiring.served.boundaries,
        trained_as=wiring.trained.convention,
        served_by=context.pair.settings.served_by,
        flags=dict(wiring.served_flags.values),
        flags_absent=tuple(wiring.served_flags.absent),
        problems=tuple(problems),
    )
    notes = (*_differences(context), *wiring.served_flags.remarks.values())
    if problems:
        return Finding(State.REGRESSION, problems[0], figures, notes)
    ids, convention = list(wiring.trained.ids), wiring.trained.convention
    parts = [f"boundaries {list(wiring.served.boundaries)}, ids {ids} read as {convention}"]
    if wiring.served_flags.absence is not None:
        parts.append(wiring.served_flags.absence)
    if not _reads_tensors(context.pair):
        parts.append("the draft's weights are not here, so its tensors and its vocabulary map were not looked at")
    message = "; ".join(parts)
    return Finding(State.PASS, message, figures, notes)


def not_run(pair: Pair) -> str | None:
    """Return why a pair is not run, `None` if it is: a forward could not form its states, or an engine would die."""
    served = pair.wiring.served
    if _is_reference(pair) and served.fault is not None:
        return f"replay cannot form the states that {served.convention} gives ({served.fault.reference})"
    return "the engine was not started: by the contract's finding it would crash" if unservable(pair) else None


def _is_reference(pair: Pair) -> bool:
    return pair.settings.engine.name.partition(":")[0] == "reference"


def unservable(pair: Pair) -> list[str]:
    """Return why an external engine is not started on a pair: it would die, or load tensors that do not fit.

    The reference engine refuses such a pair itself, before anything runs.
    """
    if _is_reference(pair):
        return []
    wiring = pair.wiring
    if wiring.loses_states:
        captured = wiring.served.captured
        return [
            f"{wiring.served.convention} captures {'boundaries ' if captured else ''}{states_text(captured)} of the "
            f"{list(wiring.trained.boundaries)} that {pair.draft.ids_key} in {pair.draft.config_file} was trained as "
            f"({'; '.join(wiring.served.remarks)}): the draft's fc would die with a shape error"
        ]
    if not _reads_tensors(pair):
        return []
    try:
        check_headers(pair.draft, len(pair.boundaries))
    except InputError as error:
        return [str(error)]
    return []


def broken_contract(pair: Pair) -> list[str]:
    """Return the faults in a pair's files with which it would run and be wrong."""
    problems = []
    wiring, draft = pair.wiring, pair.draft
    if not wiring.agree:
        why = "; ".join(wiring.served.remarks) or wiring.overlooked or wiring.served.rule
        problems.append(
            f"{draft.ids_key} = {list(wiring.trained.ids)} in {draft.config_file} was trained as boundaries "
            f"{list(wiring.trained.boundaries)} ({wiring.trained.convention}); {wiring.served.convention} serves "
            f"{states_text(wiring.served.captured)} ({why})"
        )
    problems += _flag_problems(wiring, draft.config_file)
    if not _reads_tensors(pair):
        return problems
    if _head_is_dropped(pair):
        problems.append(
            f"tie_word_embeddings = true in {draft.config_file}, and the checkpoint has a head of its own (lm_head): "
            f"{wiring.served.convention} uses the embedding instead"
        )
    # A wrong map neither fails nor shows in the draft's logits: it proposes other tokens than the draft chose.
    maps = vocabulary_map(draft)
    if maps is None:
        return problems
    d2t, t2d = maps
    # d2t holds offsets: draft token i is target token i + d2t[i]. t2d marks the same target tokens as a mask.
    reachable = torch.zeros_like(t2d)
    targets = torch.arange(len(d2t)) + d2t
    reachable[targets] = True
    if int(reachable.sum()) != len(d2t):
        problems.append(
            f"d2t in {draft.path} gives {len(d2t)} draft tokens only {int(reachable.sum())} different target tokens"
        )
    if int(t2d.sum()) != draft.draft_vocab_size:
        problems.append(
            f"t2d in {draft.path} marks {int(t2d.sum())} tokens, draft_vocab_size is {draft.draft_vocab_size}"
        )
    elif not torch.equal(reachable, t2d):
        wrong = int((reachable != t2d).sum())
        problems.append(f"t2d and d2t in {draft.path} disagree on {wrong} target tokens")
    return problems


def _reads_tensors(pair: Pair) -> bool:
    """Whether the draft's tensors are compared with its config: weights that a server has need not be here too."""
    if pair.runs_weights:
        pair.fetch_weights("draft")
        return True
    return has_weights(pair.draft.path)


def _head_is_dropped(pair: Pair) -> bool:
    """Whether the engine would use the embedding as the head of a checkpoint that has a head of its own.

    AngelSlim copies `tie_word_embeddings` from the target and ships an untied head.
    """
    served, draft = pair.settings.served_by, pair.draft
    if served is None or not served.startswith("sglang") or not draft.tie_word_embeddings:
        return False
    return "lm_head.weight" in by_canonical_name(read_headers(draft.path), draft, draft.config_file)


def _flag_problems(wiring: Wiring, file: Path) -> list[str]:
    """Return the flags by which the draft is served differently than it was trained."""
    trained, served = wiring.trained_flags, wiring.served_flags
    problems = []
    for name in trained.differing(served):
        taken = f"{trained.reader} takes {name} as {said(trained.values[name])}, {served.reader} as "
        why = served.remarks.get(name, FLAGS[name].does)
        problems.append(f"{file}: {taken}{said(served.values[name])} ({why})")
    return problems


def _differences(context: Context) -> tuple[str, ...]:
    """Return the differences from the golden's record, which explain and never decide."""
    document, wiring = context.golden.document, context.pair.wiring
    notes = []
    if list(wiring.served.boundaries) != document.wiring.boundaries:
        notes.append(
            f"boundaries {list(wiring.served.boundaries)} are captured, {document.wiring.boundaries} were when the "
            f"golden was recorded ({context.pair.draft.ids_key} = {list(wiring.served.ids)}, was {document.wiring.ids})"
        )
    return tuple(notes)
