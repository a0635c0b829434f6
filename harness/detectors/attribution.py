"""Attribution: the first stage at which a run parts from its golden, from what all detectors found.

Each stage is only named when all before it agree, so that what is named is where the fault lies and not where it shows.
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
    """Where a run parts from its golden.

    Attributes:
        stage: `target`, `embedding`, `boundary k`, `concat`, `fc`, `step s`, `vocabulary map` or `verification`.
        message: The stage in words.
    """

    stage: str
    message: str


def attribute(context: Context, findings: Findings) -> Attribution | None:
    """Return the first stage that differs; `None` where nothing does or the engine cannot know."""
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
        return Attribution("target", "the target's own choice of tokens, though its sampled states agree")
    if stages.state is State.PASS and findings.proposals.state in _FOUND:
        return Attribution(
            "vocabulary map", "the draft's logits agree and its proposals do not: d2t maps them otherwise"
        )
    return None


def _verification(context: Context, findings: Findings) -> Attribution | None:
    """Name verification where tokens were put out that the target does not choose, or rounds counted another prefix."""
    if findings.lossless.state is State.REGRESSION:
        return Attribution("verification", "tokens are put out that the target does not choose")
    for record in context.run.records:
        if record.chains is None or record.rounds is None:
            continue
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
