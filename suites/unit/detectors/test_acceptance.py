"""The `acceptance` detector: a rate that has risen, and a rate of some of the prompts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.commands.check import check
from harness.commands.prepare import prepare
from harness.detectors import Context, acceptance


def test_acceptance_that_has_risen_is_told_and_passes(recorded: Path) -> None:
    """The golden is the worse one: the draft has been improved since, and the golden is stale."""
    result = check(prepare(recorded))
    golden = result.golden
    worse = [
        prompt.model_copy(update={"histogram": [sum(prompt.histogram), 0, 0, 0, 0]})
        for prompt in golden.document.prompts
    ]
    # Twenty times the prompts, so that the rise is beyond chance.
    records = [
        replace(record, id=f"{record.id}.{copy}") for copy in range(20) for record in result.measurement.run.records
    ]
    prompts = [prompt.model_copy(update={"id": f"{prompt.id}.{copy}"}) for copy in range(20) for prompt in worse]
    document = golden.document.model_copy(update={"prompts": prompts})
    tensors = {f"{name}.{copy}": value for copy in range(20) for name, value in golden.tensors.items()}
    run = replace(result.measurement.run, records=tuple(records))
    finding = acceptance.detect(Context(result.pair, run, replace(golden, document=document, tensors=tensors)))
    assert finding.state == "pass"
    assert "the golden is stale, re-record it" in finding.notes[0]
    assert acceptance.detect(Context(result.pair, result.measurement.run, golden)).notes == ()


def test_a_rate_of_some_prompts_is_told_as_an_estimate_for_all(recorded: Path) -> None:
    whole, part = (check(prepare(recorded), prompts=prompts).findings.acceptance for prompts in (None, "2"))
    assert whole.measured.estimated_rate.estimate == part.measured.estimated_rate.estimate
    assert "estimated" not in whole.message
    assert " estimated for all 6 prompts, drop +0.0000" in part.message
