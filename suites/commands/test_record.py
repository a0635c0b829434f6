"""A golden is only recorded where a fault as plain as every boundary moved by one can be seen."""

from __future__ import annotations

from pathlib import Path

import safetensors.torch

from suites.support.command import Command
from suites.support.damage import snapshot


def test_a_draft_that_does_not_read_the_target_is_refused(recorded: Path, harness: Command) -> None:
    file = recorded.parent / "draft/model.safetensors"
    tensors = safetensors.torch.load_file(file)
    tensors["fc.weight"].zero_()
    safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})
    before = snapshot(recorded.parent)
    outcome = harness("record", recorded, "--reason", "a new draft")
    assert outcome.status == 2
    assert "the pair is blind" in outcome.err
    # The pair's boundaries hold the last one, so the copy is moved down; the embedding stays.
    assert "found [0, 1, 3] look like [0, 2, 4]" in outcome.err
    assert snapshot(recorded.parent) == before


def test_a_golden_says_who_sees_the_fault(recorded: Path, harness: Command) -> None:
    body = harness("golden", "show", recorded, "--json").json
    assert 0 < body["standard_errors"]["rate"] < 0.1
    blindness = body["blindness"]
    assert blindness["boundaries"] == [0, 1, 3]
    assert "proposals" in blindness["seen_by"]
    text = " ".join(harness("golden", "show", recorded).out.split())
    assert "boundaries [0, 1, 3] are seen by proposals" in text
