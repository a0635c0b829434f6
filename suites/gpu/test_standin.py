"""The whole reference engine on a stand-in for a GPU: a tensor on the CPU by mistake is found without one."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.commands.check import check
from harness.commands.measure import measure
from harness.commands.prepare import prepare
from harness.detectors import State
from harness.engines.base import Progress
from harness.engines.reference.draft_cache import DraftCache
from harness.engines.reference.engine import ReferenceEngine
from harness.engines.reference.ragged_cache import RaggedCache
from harness.pair.pair import load_prompts
from harness.report.check import failure
from suites.gpu.standin import DEVICE, MixedDevicesError, ReadBackError, StandIn
from suites.support.random_pair import write_pair
from suites.support.recording import Anything


@pytest.mark.parametrize("mode", ["replay", "sequential", "batched"])
def test_every_mode_counts_the_rounds_of_a_cpu(mode: str, tmp_path: Path) -> None:
    file = write_pair(tmp_path, eos=2, draft={"fc_norm": True, "norm_output": True})
    choices: dict[str, Any] = {"engine": f"reference:{mode}", "dtype": "float64", "num_steps": 3}
    with StandIn():
        found = measure(prepare(file, device=DEVICE, **choices), prompts="3").run
    assert found.device == DEVICE
    expected = measure(prepare(file, **choices), prompts="3").run
    for ours, theirs in zip(found.records, expected.records, strict=True):
        assert (ours.rounds, ours.eos_round, ours.continuation) == (
            theirs.rounds,
            theirs.eos_round,
            theirs.continuation,
        )
        assert ours.chains == theirs.chains


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_built_in_pair_passes(dtype: str) -> None:
    with StandIn():
        result = check(prepare("tiny", device=DEVICE, dtype=dtype), prompts="3")
    # In bfloat16, rounding may change a count, and three prompts do not decide then: attention is decomposed on the
    # stand-in, and rounds differently.
    states = {one.state for one in result.findings.values()}
    allowed = {State.PASS, State.NOT_APPLICABLE} | ({State.INCONCLUSIVE} if dtype == "bfloat16" else set())
    assert states <= allowed, failure(result)
    assert any("compared with the margin" in note for note in result.notes)


def test_what_a_golden_is_made_of_and_what_is_shown(tmp_path: Path) -> None:
    pair = prepare(write_pair(tmp_path), dtype="bfloat16")
    prompts, engine = load_prompts(pair)[:2], ReferenceEngine("replay")
    results = []
    for device in (DEVICE, "cpu"):
        there = pair.with_engine(device=device)
        with StandIn() if device == DEVICE else contextlib.nullcontext():
            results.append((engine.record(there, prompts, Anything(), Progress()), engine.probe(there, prompts[1])))
    (recording, probe), (expected, plain) = results
    assert [arm.how for arm in recording.noise["bfloat16"]] == [arm.how for arm in expected.noise["bfloat16"]]
    assert sum(whole for arm in recording.noise["bfloat16"] for _, whole in arm.by_prompt) > 0
    assert recording.shifted is not None
    assert len(recording.shifted.records) == len(prompts)
    assert probe.proposals == plain.proposals


def _mask_on_the_cpu(self: RaggedCache, positions: Tensor, dtype: torch.dtype) -> Tensor:
    return _AT(self, positions, dtype).cpu()


def _cache_on_the_cpu(self: DraftCache, *arguments: Any) -> None:
    _INIT(self, *arguments)
    self._keys, self._values = self._keys.cpu(), self._values.cpu()


_AT, _INIT = RaggedCache.at, DraftCache.__init__


@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [(RaggedCache, "at", _mask_on_the_cpu), (DraftCache, "__init__", _cache_on_the_cpu)],
    ids=["mask", "draft's cache"],
)
def test_what_lies_on_the_cpu_by_mistake_is_seen(
    owner: type, name: str, broken: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_pair(tmp_path)
    monkeypatch.setattr(owner, name, broken)
    with StandIn(), pytest.raises(MixedDevicesError):
        measure(prepare(file, device=DEVICE, engine="reference:batched"))
    # On a CPU the same mistake goes unnoticed.
    measure(prepare(file, engine="reference:batched"))


def test_the_rules_of_the_stand_in() -> None:
    with StandIn() as stand_in:
        here, there = torch.arange(6.0).reshape(2, 3), torch.arange(6.0, device=DEVICE).reshape(2, 3)
        assert there.device.type == DEVICE
        assert torch.equal((there[:, 1:] * 2).cpu(), here[:, 1:] * 2)
        assert torch.tensor([[1, 2]], device=DEVICE).tolist() == [[1, 2]]
        # As on CUDA, a scalar on the CPU can be used anywhere, and so can an index.
        assert (there + torch.tensor(1.0)).sum().item() == 21
        assert there[torch.tensor([1])].tolist() == [[3, 4, 5]]
        for function in (torch.add, torch.sub, lambda *both: torch.cat(both), torch.maximum):
            with pytest.raises(MixedDevicesError):
                function(there, here)
        there[0] = here[1].to(DEVICE)
        assert there.tolist() == [[3, 4, 5], [3, 4, 5]]
        for read in (lambda: bool(there.any()), lambda: int(there[0, 0]), there.tolist, there.cpu):
            with stand_in.unread(), pytest.raises(ReadBackError):
                read()
    with pytest.raises(MixedDevicesError, match="outside of it"):
        there + 1
