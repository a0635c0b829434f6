"""The reference engine on every device: captured states, the rounds of replay, and the gate of the built-in pair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings

from harness.commands.check import check
from harness.commands.measure import measure
from harness.commands.prepare import prepare
from harness.commands.record import record
from harness.detectors import State
from harness.golden.golden_class import GoldenClass
from harness.models.capture import BoundaryCapture
from harness.models.precision import exact
from harness.report.check import failure
from harness.testing import ARCHITECTURES, LayerCase, layer_cases
from suites.contract.properties import ids_of
from suites.gpu.placing import placed, relative_difference
from suites.support.builtin_pairs import copy_pair
from suites.support.random_pair import LAYERS as RANDOM_LAYERS
from suites.support.random_pair import write_pair

LAYERS = 5


@given(case=layer_cases())
@settings(max_examples=40)
def test_the_concatenation_is_what_transformers_hands_on(device: str, case: LayerCase) -> None:
    """All from one forward, so that a kernel that rounds differently from call to call does not matter."""
    target = placed(case.architecture, case.num_layers, device)
    turned = tuple(reversed(case.boundaries)) + case.boundaries[:1]
    model, ids = target.model, ids_of().to(device)
    with (
        torch.inference_mode(),
        BoundaryCapture(model, case.num_layers, case.boundaries) as captured,
        BoundaryCapture(model, case.num_layers, turned) as again,
    ):
        hidden = model(ids, output_hidden_states=True).hidden_states
    found = captured.concatenated()
    assert found.device.type == device
    slots = found.split(target.spec.hidden_size, dim=-1)
    assert len(slots) == len(case.boundaries)
    norm: Any = model.get_submodule("model.norm")
    for slot, boundary in zip(slots, case.boundaries, strict=True):
        if boundary < case.num_layers:
            assert torch.equal(slot, hidden[boundary]), boundary
        else:
            assert relative_difference(norm(slot), hidden[-1]) < 1e-5
            assert relative_difference(slot, hidden[-1]) > 1e-2
    expected = [*reversed(slots), slots[0]]
    others = again.concatenated().split(target.spec.hidden_size, dim=-1)
    assert all(torch.equal(one, other) for one, other in zip(others, expected, strict=True))


# torch has no kernel for the experts of a mixture in float64.
DENSE = [name for name, (_, sizes) in ARCHITECTURES.items() if "num_experts_per_tok" not in sizes]


@pytest.mark.parametrize(
    ("architecture", "dtype", "tolerance"),
    [(name, torch.float32, 1e-3) for name in ARCHITECTURES] + [(name, torch.float64, 1e-9) for name in DENSE],
)
def test_every_boundary_is_the_one_that_a_cpu_computes(
    device: str, architecture: str, dtype: torch.dtype, tolerance: float
) -> None:
    boundaries, ids = tuple(range(LAYERS + 1)), ids_of()
    states = []
    for where in (device, "cpu"):
        target = placed(architecture, LAYERS, where, dtype)
        with torch.inference_mode(), target.capture(boundaries) as captured:
            target.forward(ids.to(where))
            states.append(captured.concatenated())
    assert {state.dtype for state in states} == {dtype}
    width = states[0].shape[-1] // len(boundaries)
    for boundary, (ours, theirs) in enumerate(zip(states[0].split(width, -1), states[1].split(width, -1), strict=True)):
        assert relative_difference(ours, theirs) < tolerance, boundary
    # The counterpart: any two boundaries are far apart by that measure.
    assert relative_difference(states[0][..., :width], states[0][..., width : 2 * width]) > 0.1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_states_keep_a_dtype_of_two_bytes(device: str, dtype: torch.dtype) -> None:
    target, plain = (placed("LlamaForCausalLM", LAYERS, device, kind) for kind in (dtype, torch.float32))
    found = []
    for one in (target, plain):
        with torch.inference_mode(), one.capture((0, 2, LAYERS)) as captured:
            one.forward(ids_of().to(device))
            found.append(captured.concatenated())
    assert found[0].dtype == dtype
    assert relative_difference(found[0], found[1]) < 0.1


MODES = ("replay", "sequential", "batched")


def _rounds(file: str | Path, device: str, prompts: str | None = None, **choices: Any) -> dict[str, Any]:
    """Return each mode's records of a pair in float64."""
    return {
        mode: measure(
            prepare(file, engine=f"reference:{mode}", dtype="float64", device=device, **choices), prompts=prompts
        ).run.records
        for mode in MODES
    }


def _require_equal(records: dict[str, Any]) -> list[int]:
    """Require the rounds of replay to be those of both decoders; return them all."""
    rounds: list[int] = []
    for replayed, alone, together in zip(*records.values(), strict=True):
        for decoded in (alone, together):
            assert replayed.rounds == decoded.rounds, replayed.id
            assert replayed.eos_round == decoded.eos_round, replayed.id
            assert replayed.continuation[: len(decoded.continuation)] == decoded.continuation, replayed.id
        assert alone.chains == together.chains, replayed.id
        rounds += replayed.rounds
    return rounds


@pytest.mark.parametrize(
    ("flags", "eos"),
    [
        ({}, None),
        ({"norm_before_residual": True, "norm_before_fc": True}, 2),
        ({"fc_norm": True, "norm_output": True}, 2),
    ],
    ids=["plain", "norms before, EOS", "norms after, EOS"],
)
def test_replay_is_sequential_decoding(device: str, flags: dict[str, Any], eos: int | None, tmp_path: Path) -> None:
    rounds = _require_equal(_rounds(write_pair(tmp_path, eos=eos, draft=flags), device, num_steps=3))
    assert eos is not None or set(rounds) == {0, 1, 2, 3}


def test_replay_is_sequential_decoding_on_the_built_in_pair(device: str) -> None:
    rounds = _require_equal(_rounds("tiny", device, prompts="24" if device == "cuda" else "2"))
    assert len(rounds) > 30


def _some(device: str, count: int) -> str | None:
    """Return which prompts to run: all on a GPU, and a sufficient number on a CPU."""
    return None if device == "cuda" else str(count)


# In float16 and bfloat16 the run is of another class than the golden: the margin and the noise of its dtype decide.
@pytest.mark.parametrize(("dtype", "count"), [("float32", 16), ("float16", 6), ("bfloat16", 24)])
def test_the_built_in_pair_passes_against_the_golden_of_a_cpu(device: str, dtype: str, count: int) -> None:
    result = check(prepare("tiny", device=device, dtype=dtype), prompts=_some(device, count))
    assert result.golden.document.device == "cpu", "a golden of this device class is in the way"
    assert result.verdict is State.PASS, failure(result)
    crossing = [note for note in result.notes if "compared with the margin" in note]
    assert bool(crossing) is ((device, dtype) != ("cpu", "float32"))
    assert str(GoldenClass.of_run(result.measurement.run)) == f"reference-{device}-{dtype}"


@pytest.mark.parametrize(("dtype", "count"), [("float32", 16), ("bfloat16", 24)])
def test_one_id_off_by_one_is_seen_in_every_dtype(device: str, dtype: str, count: int, tmp_path: Path) -> None:
    """The counterpart: with tolerances that let everything pass, the tests above would pass too."""
    pair = prepare(copy_pair(tmp_path, ids=[2, 3, 6]), device=device, dtype=dtype)
    result = check(pair, prompts=_some(device, count))
    assert result.verdict is State.CHANGED, failure(result)
    assert result.findings["proposals"].state is State.CHANGED


def test_a_golden_of_the_device_itself(device: str, tmp_path: Path) -> None:
    pair = prepare(write_pair(tmp_path), device=device)
    file = record(pair, reason="the gpu suite").file
    assert file.name == f"reference-{device}-float32.json"
    result = check(pair)
    assert result.golden.file == file
    assert result.verdict is State.PASS, failure(result)
    assert not any("compared with the margin" in note for note in result.notes)


def test_float64_is_float64(device: str) -> None:
    """transformers casts to float32 inside the model, which `exact` undoes on every device."""
    target, ids = placed("LlamaForCausalLM", LAYERS, device, torch.float64), ids_of().to(device)
    with torch.inference_mode():
        exactly = target.forward(ids)
        with exact(torch.float64):
            same = target.model(ids).logits
        rounded = target.model(ids).logits
    assert relative_difference(exactly, same) < 1e-12
    assert relative_difference(exactly, rounded) > 1e-9


@pytest.mark.parametrize("mode", ["replay", "sequential", "batched"])
def test_a_target_that_is_spread_counts_the_same_rounds(device: str, mode: str, tmp_path: Path) -> None:
    """Every second block stays in the machine's memory and is loaded for each forward, if the device is another."""
    file = write_pair(tmp_path)
    choices: dict[str, Any] = {"engine": f"reference:{mode}", "device": device, "dtype": "float64"}
    plain = measure(prepare(file, **choices), prompts="3").run
    whole = ("model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head")
    places = dict.fromkeys(whole, device) | {
        f"model.layers.{layer}": "cpu" if layer % 2 else device for layer in range(RANDOM_LAYERS)
    }
    lines = "".join(f'"{name}" = "{place}"\n' for name, place in places.items())
    file.write_text(f"{file.read_text()}\n[engine.device_map]\n{lines}")
    spread = measure(prepare(file, **choices), prompts="3").run
    assert [record.histogram for record in spread.records] == [record.histogram for record in plain.records]
    assert any("offloaded" in note for note in spread.notes) == (device != "cpu")
