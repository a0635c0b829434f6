"""All detectors of one check: on an untouched pair, and on an engine that only decodes."""

from __future__ import annotations

from pathlib import Path

from harness.commands.check import check
from harness.commands.prepare import prepare
from harness.counts.statistics import PairedInterval
from suites.support.findings import states

ALPHA = 0.001 / 6


def test_an_untouched_pair_passes_everywhere(recorded: Path) -> None:
    result = check(prepare(recorded))
    found = states(result)
    # Replay puts out no text of its own.
    assert found.pop("lossless") == "not_applicable"
    assert set(found.values()) == {"pass"}
    assert result.drop == PairedInterval(0.0, 0.0, 0.0, 0.0, prompts=6, alpha=ALPHA, changed_prompts=0)


def test_a_decoding_engine_is_judged_by_every_detector(recorded: Path) -> None:
    """At its own rounds it knows the draft's log-probabilities and states as well."""
    result = check(prepare(recorded, engine="reference:sequential"))
    assert set(states(result).values()) == {"pass"}
    assert result.verdict == "pass"
