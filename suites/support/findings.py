"""What the detectors of a check found, in short."""

from __future__ import annotations

from harness.commands.check import CheckResult


def states(result: CheckResult) -> dict[str, str]:
    """Return the state that each detector gave, by its name."""
    return {name: str(finding.state) for name, finding in result.findings.items()}
