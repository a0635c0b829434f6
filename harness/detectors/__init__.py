"""Detectors: each looks at a run in its own way and sees what the next cannot."""

from __future__ import annotations

from harness.detectors import acceptance, contract, likelihood, lossless, proposals, stages, target
from harness.detectors.base import Context, Finding, State

__all__ = ["DETECTORS", "Context", "Finding", "State", "run_detectors"]

# In the order of the pipeline: what comes first explains what comes after.
DETECTORS = {
    "contract": contract.detect,
    "target": target.detect,
    "lossless": lossless.detect,
    "stages": stages.detect,
    "proposals": proposals.detect,
    "likelihood": likelihood.detect,
    "acceptance": acceptance.detect,
}


def run_detectors(context: Context) -> dict[str, Finding]:
    """Run every detector, in order."""
    return {name: detect(context) for name, detect in DETECTORS.items()}
