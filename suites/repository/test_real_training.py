"""The training of the real pair's drafts, tried on the tiny pair's target: nothing here needs the real one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fixtures.smollm2.draft import DraftSettings, Sample, Trained, build, collect, draft_vocabulary, fold, scales, train
from fixtures.smollm2.texts import Written, usable, write_texts
from fixtures.training.checkpoint import draft_config, save_draft, write_config
from harness.counts.rounds import Limits
from harness.engines.reference.greedy import greedy_continuations
from harness.errors import InputError
from harness.models.draft import Eagle3Draft
from harness.models.draft_weights import load_draft
from harness.models.target import Target, load_target
from harness.pair.draft_spec import DraftSpec, read_draft_spec
from harness.pair.pair import load_pair, load_prompts

BOUNDARIES = (2, 4, 7)
VOCAB = 200
SETTINGS = DraftSettings(steps=6, learning_rate=3e-3, chains=(1, 2, 3), batch=3, save_every=2)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def target() -> Target:
    return load_target(load_pair("tiny").target, dtype=torch.float32)


@pytest.fixture(scope="module")
def written(target: Target) -> list[Written]:
    prompts = load_prompts(load_pair("tiny"), "8")
    return write_texts(target, prompts, Limits(24, 3, target.spec.eos_ids), lambda _: None)


@pytest.fixture(scope="module")
def samples(target: Target, written: list[Written]) -> list[Sample]:
    return collect(target, written, BOUNDARIES, draft_vocabulary(written, VOCAB), lambda _: None)


@pytest.fixture
def spec(tmp_path: Path, target: Target) -> DraftSpec:
    config = draft_config(
        BOUNDARIES, target, draft_vocab=VOCAB, dtype=torch.float16, initializer_range=0.02, rope_theta=10000.0
    )
    write_config(tmp_path, config)
    return read_draft_spec(tmp_path, "specforge")


def _train(
    spec: DraftSpec,
    target: Target,
    written: list[Written],
    samples: list[Sample],
    checkpoint: Path,
    *,
    settings: DraftSettings = SETTINGS,
    stop_after: int | None = None,
) -> tuple[Trained, Eagle3Draft]:
    draft = build(spec, target, draft_vocabulary(written, VOCAB), 0)
    trained = train(draft, samples, BOUNDARIES, settings, 0, checkpoint, lambda *_: None, stop_after=stop_after)
    return trained, draft


def test_a_resumed_run_ends_where_an_uninterrupted_one_does(
    tmp_path: Path, spec: DraftSpec, target: Target, written: list[Written], samples: list[Sample]
) -> None:
    whole, draft = _train(spec, target, written, samples, tmp_path / "whole.pt")
    part, _ = _train(spec, target, written, samples, tmp_path / "part.pt", stop_after=4)
    resumed, same = _train(spec, target, written, samples, tmp_path / "part.pt")
    assert len(part.losses) == 4
    assert resumed.losses == whole.losses
    assert len(whole.losses) == SETTINGS.steps
    for name, value in draft.state_dict().items():
        assert torch.equal(value, same.state_dict()[name]), name
    # A run that was resumed at its end trains nothing more.
    again, _ = _train(spec, target, written, samples, tmp_path / "part.pt")
    assert again.losses == whole.losses


def test_the_loss_falls(
    tmp_path: Path, spec: DraftSpec, target: Target, written: list[Written], samples: list[Sample]
) -> None:
    settings = replace(SETTINGS, steps=30, chains=(2,))
    trained, _ = _train(spec, target, written, samples, tmp_path / "a.pt", settings=settings)
    assert sum(trained.losses[-5:]) < 0.5 * sum(trained.losses[:5])


def test_a_checkpoint_of_another_training_is_refused(
    tmp_path: Path, spec: DraftSpec, target: Target, written: list[Written], samples: list[Sample]
) -> None:
    _train(spec, target, written, samples, tmp_path / "a.pt", stop_after=2)
    with pytest.raises(InputError, match="another training"):
        _train(spec, target, written, samples[1:], tmp_path / "a.pt")


def test_fc_takes_the_scales_over(
    spec: DraftSpec, target: Target, written: list[Written], samples: list[Sample]
) -> None:
    draft = build(spec, target, draft_vocabulary(written, VOCAB), 0)
    factors = scales(samples, BOUNDARIES)
    assert len({round(factor, 3) for factor in factors}) > 1
    states = torch.cat([samples[0].states[boundary] for boundary in BOUNDARIES], dim=-1)
    scaled = torch.cat([samples[0].states[b] * factor for b, factor in zip(BOUNDARIES, factors, strict=True)], dim=-1)
    with torch.inference_mode():
        before = draft.fuse(scaled)
        fold(draft, factors)
        torch.testing.assert_close(draft.fuse(states), before)


def test_the_texts_are_those_of_the_reference_engine(target: Target, written: list[Written]) -> None:
    limits = Limits(24, 3, target.spec.eos_ids)
    texts = greedy_continuations(target, [one.prompt for one in written], limits, lambda _: None)
    assert [one.text for one in written] == texts


def test_a_saved_draft_is_read_back(
    tmp_path: Path, spec: DraftSpec, target: Target, written: list[Written], samples: list[Sample]
) -> None:
    _, draft = _train(spec, target, written, samples, tmp_path / "a.pt")
    config = draft_config(
        BOUNDARIES, target, draft_vocab=VOCAB, dtype=torch.float16, initializer_range=0.02, rope_theta=10000.0
    )
    save_draft(draft, tmp_path / "draft", config, torch.float16)
    loaded = load_draft(
        read_draft_spec(tmp_path / "draft", "specforge"),
        num_boundaries=3,
        target_embedding=target.embedding,
        dtype=torch.float32,
    )
    for name, value in draft.state_dict().items():
        stored = value.to(torch.float16).to(value.dtype) if value.is_floating_point() else value
        if name != "embed_tokens.weight":
            assert torch.equal(loaded.state_dict()[name], stored), name


@pytest.mark.parametrize(
    ("text", "gap", "good"),
    [(tuple(range(40)), 0.1, True), ((1, 2) * 20, 0.1, False), (tuple(range(40)), 1e-4, False), ((5, 2), 0.1, False)],
    ids=["fine", "loop", "tie", "short"],
)
def test_which_texts_are_used(text: tuple[int, ...], gap: float, good: bool) -> None:
    assert usable(Written("a", (1,), text, gap)) is good


def test_the_vocabulary_is_filled_up_with_the_smallest_ids() -> None:
    written = [Written("a", (1,), (9, 9, 7, 7, 7, 30), 1.0)]
    assert draft_vocabulary(written, 2) == [7, 9]
    assert draft_vocabulary(written, 6) == [0, 1, 2, 7, 9, 30]
