"""Attribution: the first stage at which a run differs from its golden, from what all detectors found.

A stage is named only if all before it agree, so that the stage named is where the fault is and not where it shows. The
stages that cannot be sketched follow from what agrees around them: the target's logits come after its last boundary,
the vocabulary map comes after the draft's logits, and verification comes last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.counts.chains import compared_chains
from harness.counts.rounds import accepted_prefix
from harness.counts.run import PromptRecord
from harness.counts.stages import POSITIONS
from harness.detectors import Findings
from harness.detectors.base import Context, State
from harness.detectors.stages import Positions, agree, compare_stages, describe

__all__ = ["NOT_SAMPLED", "Attribution", "attribute", "attribute_again", "positions_to_sample"]

_FOUND = (State.CHANGED, State.REGRESSION)


@dataclass(frozen=True)
class Attribution:
    """Where a run first differs from its golden.

    Attributes:
        stage: `target`, `embedding`, `boundary k`, `concat`, `fc`, `step s`, `vocabulary map` or `verification`;
            `not sampled` if none of the positions that changed was among those sampled.
        message: The stage in words.
    """

    stage: str
    message: str


def attribute(context: Context, findings: Findings) -> Attribution | None:
    """Return the first stage that differs; `None` if none does, or if the engine cannot know."""
    # Verification is last in the pipeline and still asked first: it is judged on evidence of its own, the engine's
    # output and rounds, whatever the stages before it did.
    broken = _verification(context, findings)
    if broken is not None:
        return broken
    stages = findings.stages
    first = None if stages.figures is None else stages.figures.first
    if first is not None and _is_first(context, first):
        return _named(context, first)
    if findings.target.figures is not None and findings.target.state in _FOUND:
        return _of_target(context, findings.target.figures.tolerance)
    if (findings.proposals.state in _FOUND or first is not None) and stages.figures is not None:
        return _of_draft(context)
    return None


# The stages that read no other position's state.
_POSITIONWISE = ("slot", "fc")


def _is_first(context: Context, stage: str) -> bool:
    """Return whether a stage that differs can be where the fault is.

    A stage with attention differs too if an earlier stage does at an earlier position, which may not have been sampled.
    But the first sampled position of a text is the first start.
    """
    if stage.partition(" ")[0] in _POSITIONWISE or stage == "boundary 0":
        return True
    start = np.array([True])
    found = compare_stages(context, {record.id: start for record in context.run.records}) or []
    return any(one.name == stage and one.share > 0 for one in found)


def _of_target(context: Context, tolerance: float) -> Attribution:
    """Name what differs where the target drifts, by the states that were sampled there."""
    drifted = {
        record.id: record.target.drifts(tolerance) for record in context.run.records if record.target is not None
    }
    found = _difference_at(context, drifted)
    if isinstance(found, Attribution):
        return found
    # The last boundary's sampled states agree there, so what differs is past it: the final norm or the head.
    if f"boundary {context.golden.document.target.num_layers}" in found:
        return Attribution("target", "the target's own choice of tokens, though its states agree where it differs")
    return Attribution("target", f"the target's own choice of tokens; {_NOT_SAMPLED}")


def _of_draft(context: Context) -> Attribution:
    """Name what differs where the proposals changed: by the states that were sampled there, or by the tokens alone."""
    found = _difference_at(context, _changed(context))
    if isinstance(found, Attribution):
        return found
    if _mapped_otherwise(context):
        return Attribution(
            "vocabulary map",
            "each of the draft's tokens stands for one other token throughout: d2t maps them differently",
        )
    return Attribution(NOT_SAMPLED, f"a stage of the draft or before it; {_NOT_SAMPLED}")


NOT_SAMPLED = "not sampled"
"""In place of a stage, if the states are not known at the positions at which something first changed."""
_NOT_SAMPLED = "states were not sampled where the first of them changed, so that the stage is not known"


def _changed(context: Context) -> Positions:
    """Return where the proposals are known to have changed."""
    result = {}
    for name, where, ours, golden in _chains(context):
        result[name] = np.zeros(int(where[-1]) + 1 if len(where) else 0, dtype=np.bool_)
        result[name][where] = (ours != golden).any(axis=1)
    return result


def _chains(context: Context) -> Iterator[tuple[str, NDArray[np.int64], NDArray[np.int64], NDArray[np.integer]]]:
    """Yield each prompt's id, where both sides know a chain, int64 [m], and these chains, [m, k] each."""
    for record, _, tensors in context.pairs():
        if tensors.proposals is None:
            continue
        compared = compared_chains(record, tensors.continuation, tensors.proposals)
        if compared is not None:
            where, ours = compared
            yield record.id, where, ours, tensors.proposals[where]


def _named(context: Context, stage: str, at: Positions | None = None) -> Attribution:
    kind = stage.partition(" ")[0]
    name = {"slot": "concat"}.get(kind, "embedding" if stage == "boundary 0" else stage)
    return Attribution(name, describe(context, stage, at))


def _difference_at(context: Context, changed: Positions) -> Attribution | frozenset[str]:
    """Return the first stage that differs at changed positions that were sampled, else the stages that agree there.

    However few they are: a fault in one prompt, or late in every text, is beyond the tolerance at few of all sampled
    positions and at all of these. Past the first change of a text only a stage without attention can be named: the
    others read the states of the positions before, and differ because those do.
    """
    where = "at changed positions; elsewhere the sampled states agree"
    for at, trusted in ((_first_of(changed), ("boundary", *_POSITIONWISE, "step")), (changed, _POSITIONWISE)):
        found = compare_stages(context, at) or []
        first = next((stage.name for stage in found if stage.share > 0), None)
        if first is not None and (first.partition(" ")[0] in trusted or first == "boundary 0"):
            place = _named(context, first, at)
            return Attribution(place.stage, f"{place.message}, {where}")
        if first is not None:
            return frozenset()
        if found:
            return frozenset(stage.name for stage in found)
    return frozenset()


def _first_of(changed: Positions) -> Positions:
    """Return the first position of each text that changed."""
    return {name: which & (np.cumsum(which) == 1) for name, which in changed.items()}


# As many prompts are run again.
_MOST_PROMPTS = 8


def positions_to_sample(context: Context) -> dict[str, tuple[int, ...]]:
    """Return where states should be looked at again: by prompt id, the first starts at which the proposals changed."""
    starts = {name: np.flatnonzero(which)[:POSITIONS].tolist() for name, which in _changed(context).items()}
    some = [(name, rows) for name, rows in starts.items() if rows][:_MOST_PROMPTS]
    return {name: tuple((*rows, *([rows[-1]] * POSITIONS))[:POSITIONS]) for name, rows in some}


def attribute_again(context: Context, records: Sequence[PromptRecord]) -> Attribution:
    """Name the stage that differs where the proposals changed, from a second run that was sampled there.

    The golden does not have states of these positions. But it says which boundary is in which slot, and the second run
    shows both. If each slot holds its boundary's state, the fault is before the boundaries' states are read or after
    they are concatenated: which of the two is not known.

    Args:
        context: The first run next to its golden.
        records: The second run's, with sketches at the positions of `positions_to_sample`.
    """
    document = context.golden.document
    sketches = np.concatenate([one.sketches for one in records if one.sketches is not None]).astype(np.float64)
    states, parts = sketches[:, : document.target.num_layers + 1], sketches[:, document.target.num_layers + 1 :]
    wrong = []
    for slot, expected in enumerate(document.wiring.boundaries):
        matching = [
            boundary for boundary in range(states.shape[1]) if agree(context, parts[:, slot], states[:, boundary]).all()
        ]
        if not agree(context, parts[:, slot], states[:, expected]).all():
            given = f"boundary {matching[0]}" if matching else "none of the target's boundaries"
            wrong.append(f"slot {slot}: {given} served, boundary {expected} expected")
    where = f"at {len(sketches)} changed positions, sampled in a second run"
    if wrong:
        return Attribution("concat", f"concat, {'; '.join(wrong)}, {where}")
    text = f"{where}, each slot holds the state of its boundary; the golden does not have states there to compare with"
    return Attribution(NOT_SAMPLED, f"a boundary's state, fc or the draft: {text}")


# Rounding turns over a near-tie here and there, whatever else is wrong.
_LEAST_EXPLAINED = 0.95


def _mapped_otherwise(context: Context) -> bool:
    """Whether another map from draft ids to target ids explains the first tokens of the chains that changed.

    Then each token of the run has replaced one and the same token of the golden, at every position. States that differ
    replace a token at some positions and leave it at others.
    """
    sides = [(ours[:, 0], golden[:, 0]) for _, _, ours, golden in _chains(context)]
    if not sides:
        return False
    ours, golden = (np.concatenate(side) for side in zip(*sides, strict=True))
    changed = ours != golden
    explained = asked = 0
    for token in np.unique(ours[changed]):
        meant, counts = np.unique(golden[ours == token], return_counts=True)
        most = int(counts.argmax())
        if meant[most] == token:
            asked += int(counts.sum() - counts[most])
        else:
            explained, asked = explained + int(counts[most]), asked + int(counts.sum())
    return asked > 0 and explained >= _LEAST_EXPLAINED * asked


def _verification(context: Context, findings: Findings) -> Attribution | None:
    """Name verification if it output tokens that the target does not choose, or accepted fewer than it should.

    A verifier that accepts too few is lossless: its output is the target's, and only slower. So its rounds are compared
    with what its own chains and its own text say that it should have accepted.
    """
    if findings.lossless.state is State.REGRESSION:
        return Attribution("verification", "it outputs tokens that the target does not choose")
    for record in context.run.records:
        if record.chains is None or record.rounds is None:
            continue
        # Not strict: the EOS round has a chain and is not in `rounds`.
        position = 0
        for chain, accepted in zip(record.chains, record.rounds, strict=False):
            agreeing = accepted_prefix(chain, record.continuation[position + 1 :])
            if accepted < agreeing:
                return Attribution(
                    "verification",
                    f"in {record.id!r} a round at position {position} accepts {accepted} tokens of a chain whose first "
                    f"{agreeing} are the text's",
                )
            position += accepted + 1
    return None
