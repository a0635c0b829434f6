"""Detectors: each looks at a run in its own way and sees what the next cannot.

Acceptance alone is nearly blind: on a real model a layer id that is off by one can cost less than the acceptance rate
varies between prompts, while it changes what the draft proposes for half of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from harness.detectors import acceptance, contract, likelihood, lossless, proposals, stages, target
from harness.detectors.acceptance import AcceptanceFigures, SumsFigures
from harness.detectors.base import Context, Finding, State
from harness.detectors.contract import ContractFigures
from harness.detectors.likelihood import LikelihoodFigures
from harness.detectors.lossless import LosslessFigures
from harness.detectors.proposals import ProposalsFigures
from harness.detectors.stages import StagesFigures
from harness.detectors.target import TargetFigures
from harness.golden.store import Golden

__all__ = ["DETECTORS", "Context", "Finding", "Findings", "State", "run_detectors", "unfed"]

# In the order of the pipeline: what comes first explains what comes after.
DETECTORS: Mapping[str, Callable[[Context], Finding[Any]]] = {
    "contract": contract.detect,
    "target": target.detect,
    "lossless": lossless.detect,
    "stages": stages.detect,
    "proposals": proposals.detect,
    "likelihood": likelihood.detect,
    "acceptance": acceptance.detect,
}


@dataclass(frozen=True)
class Findings(Mapping[str, Finding[Any]]):
    """Each detector's answer: by attribute, with the type of its figures, or by name, in the order of `DETECTORS`."""

    contract: Finding[ContractFigures]
    target: Finding[TargetFigures]
    lossless: Finding[LosslessFigures]
    stages: Finding[StagesFigures]
    proposals: Finding[ProposalsFigures]
    likelihood: Finding[LikelihoodFigures]
    acceptance: Finding[AcceptanceFigures | SumsFigures]

    def __getitem__(self, name: str) -> Finding[Any]:
        finding: Finding[Any] = vars(self)[name]
        return finding

    def __iter__(self) -> Iterator[str]:
        return (field.name for field in fields(self))

    def __len__(self) -> int:
        return len(fields(self))


def unfed(golden: Golden) -> list[str]:
    """Return the detectors that compare with something that the golden's engine does not know, in order."""
    parts = list(golden.tensors.values())
    lacks = {
        "target": not any(len(part.continuation) for part in parts),
        "stages": not any(part.sketches is not None for part in parts),
        "proposals": not any(part.proposals is not None for part in parts),
        "likelihood": not any(part.logprobs is not None for part in parts),
    }
    return [name for name in DETECTORS if lacks.get(name)]


def run_detectors(context: Context) -> Findings:
    """Run every detector, in order."""
    return Findings(**{name: detect(context) for name, detect in DETECTORS.items()})
