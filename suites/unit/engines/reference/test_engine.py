"""Replay, both decoders and plain generation agree on random pairs: every flag, every k, EOS, wrong wiring."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from harness.commands.measure import measure
from harness.commands.prepare import prepare
from harness.counts.run import PromptRecord
from harness.engines.base import Progress
from harness.engines.reference.batched import decode_batch
from harness.engines.reference.engine import ReferenceEngine
from harness.engines.reference.greedy import greedy_continuations
from harness.engines.reference.loaded import LoadedPair, load
from harness.engines.reference.replay import replay
from harness.engines.reference.sequential import decode_one
from harness.errors import InputError
from harness.pair.pair import Pair, load_prompts
from harness.pair.prompts import Prompt
from suites.support.random_pair import write_pair


def _rewired(pair: Pair, boundaries: tuple[int, ...]) -> Pair:
    reading = replace(pair.wiring.served, boundaries=boundaries)
    return replace(pair, wiring=replace(pair.wiring, trained=reading, served=reading))


def _continuations(loaded: LoadedPair, prompts: list[Prompt]) -> list[tuple[int, ...]]:
    return greedy_continuations(loaded.target, [prompt.ids for prompt in prompts], loaded.limits)


def _same(record: PromptRecord, text: list[int], rounds: list[int], eos: Any) -> bool:
    """Whether a decoder's result is the replayed one: rounds, the round of EOS, and all tokens it put out."""
    return record.rounds == tuple(rounds) and record.eos_round == eos and list(record.continuation[: len(text)]) == text


@pytest.mark.parametrize("eos", [None, 2])
@pytest.mark.parametrize(
    "flags",
    [{}, {"norm_before_residual": True}, {"norm_before_fc": True}, {"fc_norm": True, "norm_output": True}],
    ids=lambda flags: "+".join(flags) or "plain",
)
def test_replay_equals_both_decoders_round_by_round(tmp_path: Path, flags: dict[str, Any], eos: int | None) -> None:
    file = write_pair(tmp_path, eos=eos, draft=flags)
    seen: set[int] = set()
    for k in (1, 3, 5):
        for boundaries in ((0, 2, 4), (4, 1, 1)):
            pair = _rewired(prepare(file, dtype="float64", num_steps=k), boundaries)
            prompts = load_prompts(pair)
            loaded = load(pair)
            texts = _continuations(loaded, prompts)
            records = replay(loaded, prompts, texts)
            together = decode_batch(loaded, [prompt.ids for prompt in prompts])
            for prompt, record, batched in zip(prompts, records, together, strict=True):
                single = decode_one(loaded, prompt.ids)
                assert _same(record, single.continuation, single.counter.rounds, single.counter.eos_round)
                assert _same(record, batched.continuation, batched.counter.rounds, batched.counter.eos_round)
                assert single.chains == batched.chains
                assert record.rounds is not None
                seen.update(record.rounds)
    if eos is None:
        assert seen >= {0, 1, 2, 3}


def test_text_is_transformers_own_greedy_text(tmp_path: Path) -> None:
    pair = prepare(write_pair(tmp_path, eos=2))
    prompts = load_prompts(pair)
    loaded = load(pair)
    texts = _continuations(loaded, prompts)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "target")
    assert any(loaded.limits.ended(text) for text in texts)
    for prompt, text in zip(prompts, texts, strict=True):
        ids = torch.tensor([prompt.ids])
        plain = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=loaded.limits.text_length,
            pad_token_id=0,
        )
        assert plain[0, ids.shape[1] :].tolist() == list(text)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedPair:
    return load(prepare(write_pair(tmp_path_factory.mktemp("pair")), dtype="float64"))


def test_batching_changes_nothing(loaded: LoadedPair) -> None:
    prompts = load_prompts(loaded.pair)
    texts = _continuations(loaded, prompts)
    alone, together = replay(loaded, prompts, texts, max_rows=1), replay(loaded, prompts, texts)
    for one, other in zip(alone, together, strict=True):
        assert one.rounds == other.rounds
        assert one.proposals is not None
        assert other.proposals is not None
        assert (one.proposals == other.proposals).all()


def test_target_drift_is_seen_where_it_happens(loaded: LoadedPair) -> None:
    prompts = load_prompts(loaded.pair)[:2]
    texts = _continuations(loaded, prompts)
    wrong = list(texts[0])
    wrong[5] = (wrong[5] + 1) % 6
    records = replay(loaded, prompts, [tuple(wrong), texts[1]])
    assert records[0].target is not None
    assert records[1].target is not None
    assert records[0].target.agrees[:5].all()
    assert not records[0].target.agrees[5]
    assert records[0].target.gaps[5] > 0
    assert records[1].target.agrees.all()


def test_teacher_forced_hits_at_step_0_are_the_free_chains_first_tokens(loaded: LoadedPair) -> None:
    prompts = load_prompts(loaded.pair)
    texts = _continuations(loaded, prompts)
    for record, text in zip(replay(loaded, prompts, texts), texts, strict=True):
        assert record.correct is not None
        assert record.proposals is not None
        expected = record.proposals[:, 0] == list(text[1 : 1 + len(record.proposals)])
        assert (record.correct[:, 0] == expected).all()


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_every_dtype_runs(tmp_path: Path, dtype: str) -> None:
    result = measure(prepare(write_pair(tmp_path), dtype=dtype))
    assert result.acceptance.rounds > 50
    assert result.run.dtype == dtype


def test_all_modes_give_the_same_counts(tmp_path: Path) -> None:
    file = write_pair(tmp_path)
    modes = ("reference", "reference:replay", "reference:sequential", "reference:batched")
    results = [measure(prepare(file, engine=mode)) for mode in modes]
    histograms = [[record.histogram for record in result.run.records] for result in results]
    assert all(histogram == histograms[0] for histogram in histograms)
    # All use one k; prompts stay in the file's order whatever the batches were.
    assert [record.id for record in results[3].run.records] == [f"p{index}" for index in range(6)]


@pytest.mark.parametrize("mode", ["replay", "sequential", "batched"])
def test_a_target_that_computes_nan_is_told_in_every_mode(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both argmaxes would be token 0, and acceptance would look perfect."""
    pair = prepare(write_pair(tmp_path), engine=f"reference:{mode}")
    loaded = load(pair)
    texts = {prompt.id: (1,) * loaded.limits.text_length for prompt in load_prompts(pair)}
    with torch.no_grad():
        loaded.target.model.get_parameter("lm_head.weight")[7] = float("nan")
    monkeypatch.setattr("harness.engines.reference.engine.load", lambda _: loaded)
    with pytest.raises(InputError, match=r"does not compute usable logits .*float16 overflows first"):
        ReferenceEngine(mode).run(pair, load_prompts(pair), texts, Progress())
