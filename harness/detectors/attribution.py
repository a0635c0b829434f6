"""Attribution: the first stage at which a run differs from its golden, from what all detectors found.

A stage is named only if all before it agree, so that the stage named is where the fault is and not where it shows. The
stages that cannot be sketched follow from what agrees around them: the target's logits come after its last boundary,
the vocabulary map comes after the draft's logits, and verification comes last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.counts.rounds import accepted_prefix
from harness.counts.run import PromptRecord
from harness.counts.stages import sample_positions, stage_names
from harness.detectors import Findings
from harness.detectors.base import Context, State
from harness.detectors.stages import describe
from harness.golden.tensors import GoldenTensors

__all__ = ["Attribution", "attribute"]

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
    if first is not None:
        kind = first.partition(" ")[0]
        stage = {"slot": "concat"}.get(kind, "embedding" if first == "boundary 0" else first)
        return Attribution(stage, describe(context, first))
    if findings.target.state in _FOUND:
        # The last boundary's sampled states agree, so what differs is past it: the final norm or the head.
        if _sampled(context, _drifted, f"boundary {context.golden.document.target.num_layers}"):
            return Attribution("target", "the target's own choice of tokens, though its states agree where it differs")
        return Attribution("target", f"the target's own choice of tokens; {_NOT_SAMPLED}")
    if findings.proposals.state in _FOUND and stages.figures is not None:
        # Between logits that agree and tokens that do not, there is only the map from draft ids to target ids.
        if _sampled(context, _proposed_differently, "step 1"):
            return Attribution(
                "vocabulary map", "the draft's logits agree where its proposals do not: d2t maps them differently"
            )
        return Attribution("not sampled", f"a stage of the draft or before it; {_NOT_SAMPLED}")
    return None


_NOT_SAMPLED = "the states were not sampled at any of the positions that changed, so the stage is not known"


def _sampled(
    context: Context, changed: Callable[[PromptRecord, GoldenTensors], NDArray[np.bool_] | None], stage: str
) -> bool:
    """Return whether both sides have the sketch of a stage at a position that changed."""
    document = context.golden.document
    names = stage_names(document.target.num_layers, len(document.wiring.boundaries), int(document.decode["num_steps"]))
    if context.run.stages is not None and stage not in context.run.stages:
        return False
    column = names.index(stage)
    for record, _, tensors in context.pairs():
        which = changed(record, tensors)
        if which is None or record.sketches is None or tensors.sketches is None:
            continue
        starts = 0 if tensors.proposals is None else len(tensors.proposals)
        for row, position in enumerate(sample_positions(max(1, starts))):
            known = not np.isnan(tensors.sketches[row, column]).any()
            if known and position < len(which) and which[position]:
                return True
    return False


def _drifted(record: PromptRecord, _tensors: GoldenTensors) -> NDArray[np.bool_] | None:
    return None if record.target is None else ~record.target.agrees


def _proposed_differently(record: PromptRecord, tensors: GoldenTensors) -> NDArray[np.bool_] | None:
    if record.proposals is None or tensors.proposals is None:
        return None
    different: NDArray[np.bool_] = (record.proposals != tensors.proposals).any(axis=1)
    return different


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
