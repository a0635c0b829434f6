"""Each detector on a planted cause: what it says, and that the others do not say it for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

from harness.commands.check import CheckResult, check
from harness.commands.measure import measure
from harness.commands.prepare import prepare
from harness.counts.run import changed_windows
from harness.counts.statistics import PairedInterval
from harness.detectors import Context, acceptance
from harness.detectors.proposals import explained_by_rounding, noise_share
from harness.errors import InputError
from harness.golden.find import golden_in_use
from harness.golden.schema import Noise
from harness.golden.store import load_golden

ALPHA = 0.001 / 4


def _edit(file: Path, change: Callable[[dict[str, Tensor]], None]) -> None:
    tensors = safetensors.torch.load_file(file)
    change(tensors)
    safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})


def _states(result: CheckResult) -> dict[str, str]:
    return {name: str(finding.state) for name, finding in result.findings.items()}


def test_an_untouched_pair_passes_everywhere(recorded: Path) -> None:
    result = check(prepare(recorded))
    states = _states(result)
    # Replay puts out no text of its own.
    assert states.pop("lossless") == "not_applicable"
    assert set(states.values()) == {"pass"}
    assert result.drop == PairedInterval(0.0, 0.0, 0.0, 0.0, prompts=6, alpha=ALPHA, changed_prompts=0)


def test_what_stands_past_the_end_of_a_text_is_not_compared() -> None:
    """The last steps before an EOS would read what stands there: padding, which differs with the prompts beside it."""
    pair = prepare("tiny")
    golden = load_golden(golden_in_use(pair))
    whole = pair.settings.decode.max_new_tokens + pair.settings.decode.num_steps
    ended = [prompt.id for prompt in golden.document.prompts if prompt.output < whole]
    assert len(ended) > 3
    for prompts in (*ended[:3], ",".join(ended[:3])):
        finding = check(pair, prompts=prompts).findings["stages"]
        assert str(finding.state) == "pass", finding.message


def _flip_mask(tensors: dict[str, Tensor]) -> None:
    on, off = int(tensors["t2d"].nonzero()[-1]), int((~tensors["t2d"]).nonzero()[0])
    tensors["t2d"][on], tensors["t2d"][off] = False, True


def _short_mask(tensors: dict[str, Tensor]) -> None:
    tensors["t2d"][int(tensors["t2d"].nonzero()[-1])] = False


def _same_target_twice(tensors: dict[str, Tensor]) -> None:
    tensors["d2t"][-1] = tensors["d2t"][-2] - 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_flip_mask, "t2d and d2t in .* disagree on 2 target tokens"),
        (_short_mask, "marks 39 tokens, draft_vocab_size is 40"),
        (_same_target_twice, "gives 40 draft tokens only 39 different target tokens"),
    ],
)
def test_contract_sees_maps_that_contradict_each_other(
    recorded: Path, change: Callable[[dict[str, Tensor]], None], message: str
) -> None:
    _edit(recorded.parent / "draft" / "model.safetensors", change)
    result = check(prepare(recorded))
    assert _states(result)["contract"] == "regression"
    assert (result.verdict, result.exit_code) == ("regression", 1)
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(result.findings["contract"].message)


def test_contract_names_ids_that_are_served_otherwise_than_trained(recorded: Path) -> None:
    """Another convention reads the same integers as other layers: found without a forward, and measured too."""
    config = recorded.parent / "draft" / "config.json"
    config.write_text(config.read_text().replace("[-1, 1, 3]", "[0, 1, 3]"))
    recorded.write_text(recorded.read_text().replace("[decode]", 'served_by = "eagle"\n[decode]'))
    result = check(prepare(recorded))
    message = result.findings["contract"].message
    assert _states(result)["contract"] == "regression"
    assert "[1, 2, 4] (specforge)" in message
    assert "eagle serves [0, 1, 3] (boundary = id)" in message


def test_served_by_sglang_sorts_and_never_reaches_the_last_boundary(recorded: Path) -> None:
    """SGLang's capture loop loses the order, and boundary N: two states are left where three were trained."""
    recorded.write_text(recorded.read_text().replace("[decode]", 'served_by = "sglang==0.5.23"\n[decode]'))
    with pytest.raises(InputError, match=r"captures fewer .*\[0, 2\] for ids \[-1, 1, 3\].*\[0, 2, 4\], as trained"):
        measure(prepare(recorded))
    config = recorded.parent / "draft" / "config.json"
    config.write_text(config.read_text().replace("[-1, 1, 3]", "[2, 0, 1]"))
    wiring = prepare(recorded).wiring
    assert (wiring.trained.boundaries, wiring.served.boundaries) == ((3, 1, 2), (1, 2, 3))


def test_target_says_first_that_the_target_itself_has_changed(recorded: Path) -> None:
    def other_head(tensors: dict[str, Tensor]) -> None:
        generator = torch.Generator().manual_seed(1)
        head = tensors["lm_head.weight"]
        tensors["lm_head.weight"] = head + 0.3 * head.std() * torch.randn(head.shape, generator=generator)

    _edit(recorded.parent / "target" / "model.safetensors", other_head)
    result = check(prepare(recorded))
    assert _states(result)["target"] == "changed"
    assert result.findings.target.measured.drifted > 0
    assert "target drift" in result.findings["target"].message
    # The states are what they were: the head is past every boundary, and the draft has its own.
    assert _states(result)["proposals"] == "pass"
    assert result.findings.target.measured.decides is True


def test_likelihood_sees_a_draft_that_is_as_often_right_but_less_sure(recorded: Path) -> None:
    def colder(tensors: dict[str, Tensor]) -> None:
        tensors["lm_head.weight"] *= 0.5

    before = recorded.parent / "prompts.jsonl"
    assert before.exists()
    _edit(recorded.parent / "draft" / "model.safetensors", colder)
    result = check(prepare(recorded))
    # Scaling logits changes no argmax.
    assert _states(result)["proposals"] == "pass"
    assert _states(result)["acceptance"] == "pass"
    figures = result.findings.likelihood.measured
    assert figures.noise_floor is not None
    assert abs(figures.loss.estimate) > 100 * figures.noise_floor


def test_what_a_decoding_engine_cannot_know_is_not_applicable(recorded: Path) -> None:
    result = check(prepare(recorded, engine="reference:sequential"))
    states = _states(result)
    assert states["stages"] == states["likelihood"] == "not_applicable"
    assert states["target"] == states["lossless"] == states["proposals"] == states["acceptance"] == "pass"
    assert result.verdict == "pass"


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


def test_blocks_of_neighbouring_positions() -> None:
    changed = np.array([0, 1, 1, 0, 0, 0, 0, 0, 1], bool)
    assert changed_windows(changed, 4) == (2, 3)
    assert changed_windows(np.zeros(8, bool), 4) == (0, 2)
    assert changed_windows(np.zeros(0, bool), 4) == (0, 0)


def test_noise_bound_is_the_exact_one() -> None:
    # Nothing seen in n windows: 1 - alpha^(1/n).
    quiet = Noise(windows=1000, changed=0, likelihood=1e-5, how="")
    assert noise_share(quiet, ALPHA) == pytest.approx(1 - ALPHA ** (1 / 1000))
    assert noise_share(Noise(windows=5, changed=5, likelihood=1e-5, how=""), ALPHA) == 1.0


@pytest.mark.parametrize(
    ("changed", "windows", "explained"),
    [(0, 10, True), (1, 24, True), (5, 24, False), (12, 2304, True), (60, 2304, False)],
)
def test_what_rounding_explains(changed: int, windows: int, explained: bool) -> None:
    assert explained_by_rounding(changed, windows, 0.002, ALPHA) is explained


def test_rounding_noise_of_the_recorded_size_rarely_fires() -> None:
    """A/A: noise at the true share, floor measured on as many windows. The level is ALPHA; none of 2,000 fires."""
    generator = np.random.default_rng(5)
    fired = 0
    for _ in range(2000):
        share = generator.choice([0.0, 0.001, 0.02, 0.2])
        noise = Noise(windows=2304, changed=int(generator.binomial(2304, share)), likelihood=1e-5, how="")
        seen = int(generator.binomial(2304, share))
        fired += not explained_by_rounding(seen, 2304, noise_share(noise, ALPHA), ALPHA)
    assert fired == 0
