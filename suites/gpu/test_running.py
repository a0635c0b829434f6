"""CUDA graphs, `torch.compile`, streams and memory, each against the plain run; on a CPU their substitutes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from harness.commands.check import check
from harness.commands.measure import measure
from harness.commands.prepare import prepare
from harness.commands.record import record
from harness.engines.reference.loaded import LoadedPair, load
from harness.pair.pair import load_prompts
from suites.gpu.placing import relative_difference
from suites.gpu.running import PairStep, Recorded, held_bytes, on_streams
from suites.gpu.standin import DEVICE, ReadBackError, StandIn
from suites.support.builtin_pairs import IDS_KEY
from suites.support.random_pair import VOCAB, write_pair, write_target

LENGTH = 40
# By dtype, the tolerance of the detector of stages, since kernels add in another order.
TOLERANCE = {"float32": 1e-3, "bfloat16": 2e-1}


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def tiny(device: str, dtype: str) -> LoadedPair:
    return load(prepare("tiny", device=device, dtype=dtype))


def _prompts(loaded: LoadedPair, count: int = 4) -> list[Tensor]:
    """Return real prompts of the pair, cut to ids [1, LENGTH]."""
    ids = [prompt.ids for prompt in load_prompts(loaded.pair) if len(prompt.ids) >= LENGTH][:count]
    return [torch.tensor([one[:LENGTH]], device=loaded.target.device) for one in ids]


def _step(loaded: LoadedPair) -> PairStep:
    return PairStep(loaded.target, loaded.draft, loaded.pair.boundaries, steps=4, length=LENGTH)


@torch.inference_mode()
def test_a_recorded_step_is_the_step(tiny: LoadedPair, dtype: str) -> None:
    prompts = _prompts(tiny)
    with _step(tiny) as step:
        plain = [step.chain(ids) for ids in prompts]
        recorded = Recorded(step.chain, prompts[0])
        replayed = [recorded(ids) for ids in prompts]
    for ours, theirs in zip(replayed, plain, strict=True):
        assert relative_difference(ours[0], theirs[0]) < TOLERANCE[dtype]
        assert relative_difference(ours[1], theirs[1]) < TOLERANCE[dtype]
    chains = [torch.cat([result[2] for result in results]) for results in (replayed, plain)]
    # In bfloat16 a near-tie may change a token of a chain; in float32 none does.
    assert float((chains[0] == chains[1]).double().mean()) >= (1.0 if dtype == "float32" else 0.75)
    # The counterpart: each replay reads the ids that it is given.
    assert relative_difference(replayed[1][1], plain[0][1]) > 0.5


@torch.inference_mode()
def test_a_step_can_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a stand-in for a GPU: nothing is on the CPU by mistake, and nothing is read back."""
    # transformers reads nothing back while a graph is recorded; here it must be told that one is.
    monkeypatch.setattr("transformers.masking_utils.is_tracing", lambda *_: True)
    with StandIn() as stand_in:
        loaded = load(prepare("tiny", device=DEVICE))
        ids = _prompts(loaded)[0]
        with _step(loaded) as step, stand_in.unread():
            logits, states, chain = step.chain(ids)
        assert {tensor.device.type for tensor in (ids, logits, states, chain)} == {DEVICE}
        found = [tensor.cpu() for tensor in (logits, states, chain)]
        # The counterpart: the forward of the engine looks for NaN, and reads the answer back.
        with stand_in.unread(), pytest.raises(ReadBackError):
            loaded.target.forward(ids)
    plain = load(prepare("tiny"))
    with _step(plain) as step:
        expected = step.chain(_prompts(plain)[0])
    assert relative_difference(found[0], expected[0]) < TOLERANCE["float32"]
    assert relative_difference(found[1], expected[1]) < TOLERANCE["float32"]
    assert torch.equal(found[2], expected[2])


@pytest.fixture(scope="module")
def small(device: str, tmp_path_factory: pytest.TempPathFactory) -> LoadedPair:
    """A random pair of two layers, since compiling takes time for each."""
    folder = tmp_path_factory.mktemp("small")
    file = write_pair(folder, draft={"eagle_config": {IDS_KEY: [-1, 0, 1], "use_aux_hidden_state": True}})
    shutil.rmtree(folder / "target")
    write_target(folder / "target", layers=2)
    return load(prepare(file, device=device))


@pytest.fixture
def _fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


# torch's compiler uses what torch itself deprecates, and recommends lower precision if a GPU offers it.
@pytest.mark.filterwarnings("default")
@pytest.mark.usefixtures("_fresh_compiler")
@torch.inference_mode()
def test_a_compiled_step_is_the_step(small: LoadedPair, device: str) -> None:
    # The trace is the same. On a CPU compiling it to C++ takes a minute, so it is run as traced.
    backend = "inductor" if device == "cuda" else "aot_eager"
    generator = torch.Generator().manual_seed(5)
    prompts = [torch.randint(0, VOCAB, (1, 12), generator=generator).to(device) for _ in range(3)]
    with PairStep(small.target, small.draft, small.pair.boundaries, steps=2, length=12) as step:
        plain = [step.chain(ids) for ids in prompts]
        # As one graph: a capture that breaks the graph would run outside of what is compiled.
        compiled = torch.compile(step.chain, fullgraph=True, backend=backend)
        for ids, theirs in zip(prompts, plain, strict=True):
            ours = compiled(ids)
            assert relative_difference(ours[0], theirs[0]) < 1e-3
            assert relative_difference(ours[1], theirs[1]) < 1e-3
            assert torch.equal(ours[2], theirs[2])
    assert relative_difference(plain[0][1], plain[1][1]) > 0.5


@torch.inference_mode()
def test_streams_capture_what_one_stream_does(tiny: LoadedPair, device: str, dtype: str) -> None:
    prompts = [ids.expand(8, -1).contiguous() for ids in _prompts(tiny)]

    def captured(ids: Tensor) -> Tensor:
        with tiny.target.capture(tiny.pair.boundaries) as capture:
            tiny.target.model(input_ids=ids, use_cache=False)
            return capture.concatenated()

    plain = [captured(ids) for ids in prompts]
    for _ in range(3):
        found = on_streams(device, [lambda ids=ids: captured(ids) for ids in prompts])  # type: ignore[misc]
        for ours, theirs in zip(found, plain, strict=True):
            # A library may choose another kernel on another stream, which changes the rounding and nothing else.
            assert relative_difference(ours, theirs) < TOLERANCE[dtype] / 10
    assert relative_difference(plain[0], plain[1]) > 0.5


def _everything(file: Path, device: str) -> None:
    """Run everything that the reference engine does: all modes, a record, a check."""
    for mode in ("replay", "sequential", "batched"):
        measure(prepare(file, device=device, engine=f"reference:{mode}"))
    pair = prepare(file, device=device)
    record(pair, reason="the gpu suite")
    check(pair)


def test_memory_is_given_back(device: str, tmp_path: Path) -> None:
    file = write_pair(tmp_path)
    # Once before counting: libraries keep their workspaces, and a table of signs is kept for each width.
    _everything(file, device)
    before = held_bytes(device)
    _everything(file, device)
    assert held_bytes(device) == before
    # The counterpart: models that are still referred to are counted.
    loaded = load(prepare(file, device=device))
    weights = sum(weight.nbytes for weight in loaded.target.model.parameters())
    assert held_bytes(device) >= before + weights
