"""Attribution: the first stage at which a run differs from its golden, from what all detectors found.

A stage is named only if all before it agree, so that the stage named is where the fault is and not where it shows. The
stages that cannot be sketched follow from what agrees around them: the target's logits come after its last boundary,
the vocabulary map comes after the draft's logits, and verification comes last.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.counts.rounds import accepted_prefix
from harness.detectors import Findings
from harness.detectors.base import Context, State
from harness.detectors.stages import describe

__all__ = ["Attribution", "attribute"]

_FOUND = (State.CHANGED, State.REGRESSION)


@dataclass(frozen=True)
class Attribution:
    """Where a run first differs from its golden.

    Attributes:
        stage: `target`, `embedding`, `boundary k`, `concat`, `fc`, `step s`, `vocabulary map` or `verification`.
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
    # All sampled states agree, the last boundary's too, so what differs is past it: the final norm or the head.
    if findings.target.state in _FOUND:
        return Attribution("target", "the target's own choice of tokens, though its sampled states agree")
    # Between logits that agree and tokens that do not, there is only the map from draft ids to target ids.
    if stages.state is State.PASS and findings.proposals.state in _FOUND:
        return Attribution(
            "vocabulary map", "the draft's logits agree and its proposals do not: d2t maps them differently"
        )
    return None


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
