"""One change planted at each stage, in weights, config or code: the stage is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.commands.check import CheckResult, check
from harness.commands.prepare import prepare
from harness.counts.run import TargetCheck
from harness.counts.stages import sample_positions
from harness.detectors import Context, run_detectors
from harness.detectors.attribution import attribute
from harness.engines.reference.agreement import ReferenceTarget
from harness.engines.shared.decoded import Decoded
from suites.support.command import Command
from suites.support.damage import edit_json, edit_tensors

Edit = Callable[[dict[str, torch.Tensor]], object]


def _scale(name: str, factor: float = 1.3) -> Edit:
    def edit(tensors: dict[str, torch.Tensor]) -> None:
        tensors[name] = tensors[name] * factor

    return edit


def _swap_map(tensors: dict[str, torch.Tensor]) -> None:
    """Let draft tokens 0 … 5 stand for one another's target tokens: the set stays, so that no contract is broken."""
    targets = tensors["d2t"] + torch.arange(len(tensors["d2t"]))
    targets[:6] = targets[:6].roll(1)
    tensors["d2t"] = targets - torch.arange(len(targets))


TARGET, DRAFT = "target/model.safetensors", "draft/model.safetensors"
WEIGHTS: dict[str, tuple[str, Edit]] = {
    "embedding": (TARGET, _scale("model.embed_tokens.weight")),
    "boundary 1": (TARGET, _scale("model.layers.0.self_attn.v_proj.weight")),
    "boundary 3": (TARGET, _scale("model.layers.2.mlp.down_proj.weight")),
    "fc": (DRAFT, _scale("fc.weight")),
    "step 1": (DRAFT, _scale("midlayer.self_attn.v_proj.weight")),
    "vocabulary map": (DRAFT, _swap_map),
}


@pytest.mark.parametrize("stage", WEIGHTS)
def test_a_change_of_weights_is_named_by_its_stage(stage: str, recorded: Path, harness: Command) -> None:
    file, edit = WEIGHTS[stage]
    edit_tensors(recorded.parent / file, edit)
    body = harness("check", recorded, "--json").json
    assert body["first_stage"]["stage"] == stage
    assert body["detectors"]["contract"]["verdict"] == "pass"
    assert body["detectors"]["stages"]["verdict"] == ("pass" if stage == "vocabulary map" else "changed")


def test_a_changed_head_of_the_target_is_the_target(recorded: Path, harness: Command) -> None:
    """After the last boundary there is no state that the draft could see; the target's own choice tells."""
    edit_tensors(recorded.parent / TARGET, lambda tensors: tensors["lm_head.weight"].neg_())
    body = harness("check", recorded, "--json").json
    assert body["first_stage"]["stage"] == "target"
    assert body["detectors"]["target"]["verdict"] == "changed"
    assert body["detectors"]["stages"]["verdict"] == "pass"


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ([-1, 1, 2], "concat, slot 2: boundary 3 served, boundary 4 expected"),
        ([1, -1, 3], "concat, slot 0: boundary 2 served, boundary 0 expected; slot 1: boundary 0 served, boundary 2"),
    ],
)
def test_wrong_ids_are_named_with_the_boundary_served(
    ids: list[int], says: str, recorded: Path, harness: Command
) -> None:
    edit_json(
        recorded.parent / "draft/config.json",
        lambda body: body["eagle_config"].update(eagle_aux_hidden_state_layer_ids=ids),
    )
    body = harness("check", recorded, "--json").json
    assert body["first_stage"]["stage"] == "concat"
    assert body["first_stage"]["message"].startswith(says)
    assert says in " ".join(harness("check", recorded).out.split())


def test_a_flag_of_the_recycled_state_shows_at_step_2(recorded: Path, harness: Command) -> None:
    edit_json(recorded.parent / "draft/config.json", lambda body: body.update(norm_output=True))
    assert harness("check", recorded, "--json").json["first_stage"]["stage"] == "step 2"


def _short(decoded: Decoded, chain: Any, predicted: Any) -> int:
    """Accept one token fewer than agree: the text stays right, and only the rate falls."""
    accepted = 0
    while accepted < len(chain) and chain[accepted] == predicted[accepted]:
        accepted += 1
    accepted = max(0, accepted - 1)
    decoded.chains.append(tuple(chain))
    decoded.continuation.extend(decoded.counter.add(len(chain), accepted, [*chain[:accepted], predicted[accepted]]))
    return accepted


def _blind(decoded: Decoded, chain: Any, predicted: Any) -> int:
    """Accept the chain's first token whatever the target says."""
    decoded.chains.append(tuple(chain))
    decoded.continuation.extend(decoded.counter.add(len(chain), 1, [chain[0], predicted[1]]))
    return 1


def test_a_verification_that_accepts_too_few_is_named(
    recorded: Path, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Decoded, "verify", _short)
    body = harness("check", recorded, "--engine", "reference:sequential", "--json").json
    assert body["first_stage"]["stage"] == "verification"
    assert "accepts 0 tokens of a chain whose first 1 are the text's" in body["first_stage"]["message"]
    assert body["detectors"]["lossless"]["verdict"] == "pass"
    assert body["detectors"]["proposals"]["verdict"] == "pass"


@pytest.mark.parametrize("engine", ["reference:sequential", "reference:batched"])
def test_a_verification_that_accepts_blindly_is_not_lossless(
    engine: str, recorded: Path, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Decoded, "verify", _blind)
    outcome = harness("check", recorded, "--engine", engine, "--json")
    body = outcome.json
    assert outcome.status == 1
    assert body["verdict"] == "regression"
    assert body["first_stage"]["stage"] == "verification"
    assert body["detectors"]["lossless"]["verdict"] == "regression"
    assert body["detectors"]["lossless"]["not_deterministic"] == []


def test_a_target_that_wavers_is_no_witness(recorded: Path, harness: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs without speculation differ: what speculation put out cannot be judged."""
    monkeypatch.setattr(Decoded, "verify", _blind)
    real = ReferenceTarget.agreement

    def wavering(target: ReferenceTarget, prompts: Any, continuations: Any) -> list[TargetCheck]:
        """Asked about one prompt alone, the target chooses another first token than among several."""
        flip = len(prompts) == 1
        checks = real(target, prompts, continuations)
        return [TargetCheck(np.r_[check.agrees[:1] ^ flip, check.agrees[1:]], check.gaps) for check in checks]

    monkeypatch.setattr(ReferenceTarget, "agreement", wavering)
    body = harness("check", recorded, "--engine", "reference:sequential", "--json").json
    assert body["detectors"]["lossless"]["verdict"] == "not_measured"
    assert body["detectors"]["lossless"]["not_deterministic"]


@pytest.mark.parametrize("engine", ["reference", "reference:sequential", "reference:batched"])
def test_nothing_changed_names_nothing(engine: str, recorded: Path, harness: Command) -> None:
    body = harness("check", recorded, "--engine", engine, "--json").json
    assert body["verdict"] == "pass"
    assert body["first_stage"] is None
    decodes = engine != "reference"
    assert body["detectors"]["lossless"]["verdict"] == ("pass" if decodes else "not_applicable")
    assert body["detectors"]["stages"]["verdict"] == "pass"
    assert body["detectors"]["proposals"]["verdict"] == "pass"


def test_a_decoding_engine_sees_other_chains_too(recorded: Path, harness: Command) -> None:
    edit_tensors(recorded.parent / DRAFT, _scale("fc.weight", -1.0))
    body = harness("check", recorded, "--engine", "reference:sequential", "--json").json
    assert body["detectors"]["proposals"]["verdict"] == "changed"
    assert body["detectors"]["lossless"]["verdict"] == "pass"


def _drifted_at(result: CheckResult, position: int) -> CheckResult:
    """Return a check whose target differs from its golden's at one position of one prompt, and in no sampled state."""
    first, *others = result.measurement.run.records
    assert first.target is not None
    agrees, gaps = first.target.agrees.copy(), first.target.gaps.copy()
    agrees[position], gaps[position] = False, 7.4
    run = replace(result.measurement.run, records=(replace(first, target=TargetCheck(agrees, gaps)), *others))
    findings = run_detectors(Context(result.pair, run, result.golden))
    first_stage = attribute(Context(result.pair, run, result.golden), findings)
    return replace(result, findings=findings, attribution=first_stage)


@pytest.mark.parametrize(("position", "sampled"), [(0, True), (5, False)])
def test_a_target_that_differs_is_said_to_agree_elsewhere_only_if_it_was_sampled_there(
    recorded: Path, position: int, sampled: bool
) -> None:
    result = _drifted_at(check(prepare(recorded)), position)
    assert result.attribution is not None
    assert result.attribution.stage == "target"
    assert ("agree where it differs" in result.attribution.message) == sampled
    assert ("not sampled where the first of them changed" in result.attribution.message) != sampled


def test_proposals_that_change_where_nothing_was_sampled_name_no_stage(recorded: Path) -> None:
    """The map from draft ids is not to blame for states that nobody looked at."""
    healthy = check(prepare(recorded))
    (first, *_) = healthy.measurement.run.records
    assert first.proposals is not None
    starts = len(first.proposals)
    assert 1 not in sample_positions(starts)
    context = Context(healthy.pair, healthy.measurement.run, healthy.golden)
    records = []
    for record in context.run.records:
        assert record.proposals is not None
        proposals = record.proposals.copy()
        proposals[[row for row in range(len(proposals)) if row not in sample_positions(len(proposals))]] += 1
        records.append(replace(record, proposals=proposals))
    run = replace(context.run, records=tuple(records))
    findings = run_detectors(replace(context, run=run))
    assert str(findings.proposals.state) == "changed"
    stage = attribute(replace(context, run=run), findings)
    assert stage is not None
    assert stage.stage == "not sampled"
    assert "the stage is not known" in stage.message
