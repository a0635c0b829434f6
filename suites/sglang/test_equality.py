"""The right wiring and the incident's, on one engine each: rounds, output and states equal the reference engine's.

What `check` and `trace` say of them follows at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

from harness.commands.check import check
from harness.commands.prepare import prepare
from harness.commands.trace import trace, trace_run, trace_static
from harness.counts.run import PromptRecord
from harness.engines.base import Continuations, Progress
from harness.engines.reference.loaded import load
from harness.engines.sglang.engine import decode
from harness.engines.sglang.launch import RunningEngine
from harness.engines.sglang.rounds import read_capture, read_state_files
from harness.engines.shared.sglang_target import judge_by_sglang
from harness.pair.pair import Pair
from harness.pair.prompts import Prompt
from suites.sglang.serving import greedy, lending, reference, rewired, serving
from suites.sglang.short_pair import check_shortest, copy_short, record_short, require_incident, states
from suites.support.builtin_pairs import layer_ids
from suites.support.prompts import shortest

# The ids of the draft's config, the boundaries served by them, and tokens to decode: together more than 100 rounds.
WIRINGS = {"right": (layer_ids("tiny"), (2, 4, 7), 24), "incident": (layer_ids("tiny-embedding"), (0, 2, 4), 24)}
PROMPTS = 8

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class _Served:
    pair: Pair
    prompts: list[Prompt]
    engine: RunningEngine
    records: list[PromptRecord]
    boundaries: tuple[int, ...]

    @property
    def right(self) -> bool:
        return self.boundaries == WIRINGS["right"][1]


@pytest.fixture(scope="module", params=WIRINGS)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Served]:
    ids, boundaries, tokens = WIRINGS[request.param]
    pair = rewired(tmp_path_factory.mktemp(request.param), ids, tokens)
    prompts = shortest(pair, PROMPTS)
    with serving(pair, enable_return_hidden_states=True) as engine:
        yield _Served(pair, prompts, engine, decode(engine, prompts, pair.limits), boundaries)


@pytest.fixture(scope="module")
def texts(served: _Served) -> Continuations:
    return greedy(served.pair, served.prompts)


def test_it_captures_the_boundaries(served: _Served) -> None:
    capture = read_capture(served.engine.watch)
    assert capture.ids == served.pair.draft.layers.ids
    assert capture.layers == served.boundaries == served.pair.boundaries


def test_rounds_equal_the_reference(served: _Served) -> None:
    expected = reference(served.pair, served.prompts)
    assert len(served.records) == PROMPTS
    for ours, theirs in zip(served.records, expected, strict=True):
        assert ours.id == theirs.id
        assert ours.histogram == theirs.histogram, ours.id
        assert ours.rounds == theirs.rounds, ours.id
        assert ours.eos_round == theirs.eos_round, ours.id
        assert ours.chains == theirs.chains, ours.id
        assert ours.continuation == theirs.continuation, ours.id


def test_there_is_enough_to_compare(served: _Served) -> None:
    counts = [sum(record.histogram[accepted] for record in served.records) for accepted in range(5)]
    assert sum(counts) >= (40 if served.right else 60)
    if not served.right:
        assert all(counts), "every accepted count occurs"


def test_output_is_what_transformers_decodes(served: _Served, texts: Continuations) -> None:
    for record in served.records:
        assert record.continuation == texts[record.id][: len(record.continuation)], record.id


def test_its_own_target_agrees(served: _Served, texts: Continuations) -> None:
    judged = judge_by_sglang(served.engine, served.prompts, served.records, texts, served.pair.limits.cut, Progress())
    for record in judged:
        assert record.own is not None
        assert record.target is not None
        assert len(record.own.agrees) == len(record.continuation)
        assert len(record.target.agrees) == served.pair.limits.text_length
        assert record.own.agrees.all(), record.id
        assert record.target.agrees.all(), record.id
        assert record.deterministic is None


def test_its_target_disagrees_with_another_text(served: _Served, texts: Continuations) -> None:
    """The counterpart: a wrong token is seen, by as much as the transformers target sees it."""
    prompts, records = served.prompts[:1], served.records[:1]
    wrong = list(texts[prompts[0].id])
    wrong[3] = (wrong[3] + 1) % served.pair.target.vocab_size
    limits = served.pair.limits
    output = replace(records[0], continuation=tuple(wrong[: len(records[0].continuation)]))
    (judged,) = judge_by_sglang(served.engine, prompts, [output], texts, limits.cut, Progress())
    assert judged.own is not None
    assert judged.target is not None
    assert not judged.own.agrees[3]
    assert judged.own.gaps[3] > 1
    assert judged.own.agrees[:3].all()
    assert judged.target.agrees.all()
    assert judged.deterministic is True


def test_fc_receives_the_boundaries(served: _Served) -> None:
    """What the draft's `fc` is given at every position that stays equals transformers' hidden states."""
    prompt = served.prompts[0]
    served.engine.flush_cache()
    with served.engine.writing_states():
        (record,) = decode(served.engine, [prompt], replace(served.pair.limits, max_new_tokens=10))
    target = load(served.pair).target
    with target.capture(served.boundaries) as capture, torch.inference_mode():
        target.forward(torch.tensor([[*prompt.ids, *record.continuation]]))
        expected = capture.concatenated()[0]
    width = expected.shape[1]
    calls = [(mode, safetensors.torch.load_file(file)) for mode, file in read_state_files(served.engine.watch)]
    fused = [(mode, tensors) for mode, tensors in calls if tensors["states"].shape[1] == width]
    assert [mode for mode, _ in fused] == ["EXTEND", *["DRAFT_EXTEND_V2"] * len(record.rounds or ())]
    # Of the tokens verified in a round, those that were accepted and the one before them stay.
    kept = [len(prompt.ids), *(accepted + 1 for accepted in record.rounds or ())]
    for rows, (_, tensors) in zip(kept, fused, strict=True):
        torch.testing.assert_close(tensors["states"][:rows], expected[tensors["positions"][:rows]], rtol=0, atol=1e-4)
    # The counterpart: a slot of another boundary is far from it.
    states = fused[0][1]["states"]
    hidden = width // len(served.boundaries)
    assert (states[:, :hidden] - expected[: len(prompt.ids), hidden : 2 * hidden]).abs().max() > 0.1


def test_one_at_a_time_and_a_known_prefix_change_nothing(served: _Served) -> None:
    """Alone instead of in a batch of eight; its prompt computed anew, and then found in the radix cache."""
    prompt, record = served.prompts[1], served.records[1]
    limits = replace(served.pair.limits, max_new_tokens=12)
    rounds = next(
        count for count in range(1, 99) if 1 + sum(accepted + 1 for accepted in (record.rounds or ())[:count]) >= 12
    )
    ask = {"input_ids": [list(prompt.ids)], "sampling_params": {"temperature": 0.0, "max_new_tokens": 1}}
    served.engine.flush_cache()
    assert served.engine.generate(**ask)[0]["meta_info"]["cached_tokens"] == 0
    served.engine.flush_cache()
    (miss,) = decode(served.engine, [prompt], limits)
    assert served.engine.generate(**ask)[0]["meta_info"]["cached_tokens"] >= len(prompt.ids) - 2
    (hit,) = decode(served.engine, [prompt], limits)
    for alone in (miss, hit):
        assert alone.rounds == (record.rounds or ())[:rounds]
        assert alone.chains == (record.chains or ())[:rounds]
        assert alone.continuation == record.continuation[: len(alone.continuation)]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_short(tmp_path_factory.mktemp("recorded"))


def test_check_says_what_the_wiring_is_worth(served: _Served, recorded: Path, tmp_path: Path) -> None:
    file = copy_short(recorded, tmp_path, list(served.pair.draft.layers.ids or ()))
    with lending(served.engine):
        result = check_shortest(file, 3 if served.right else 10)
    if not served.right:
        require_incident(result, [2, 4, 7], [0, 2, 4])
        return
    assert str(result.verdict) == "pass"
    assert states(result) == {
        "contract": "pass",
        "target": "pass",
        "lossless": "pass",
        "stages": "pass",
        "proposals": "pass",
        "likelihood": "not_applicable",
        "acceptance": "pass",
    }
    ids = ",".join(entry.id for entry in result.measurement.run.records)
    plain = check(prepare(file), prompts=ids)
    ours, theirs = ({entry.id: entry.histogram for entry in one.measurement.run.records} for one in (result, plain))
    assert ours == theirs


def test_trace_shows_what_the_running_engine_does(served: _Served, recorded: Path, tmp_path: Path) -> None:
    """The states are those that the reference engine captures; of wrong ones the proposals are not the golden's."""
    file = copy_short(recorded, tmp_path, list(served.pair.draft.layers.ids or ()))
    ready = prepare(file, engine="sglang")
    # The states of a prompt that is known are not computed anew.
    served.engine.flush_cache()
    with lending(served.engine):
        real = trace_run(trace_static(ready.outline), ready)
    plain = trace(str(file))
    wrong = [None if one.first_wrong is None else one.first_wrong.name for one in (real, plain)]
    assert wrong == [None if served.right else "first proposals"] * 2
    ours, theirs = ({step.name: step for step in one.steps} for one in (real, plain))
    assert ours["ids resolved"].value == list(served.pair.draft.layers.ids or ())
    assert ours["layers to capture"].value == list(served.boundaries)
    assert ours["verification"].ok
    for slot in range(3):
        one, other = ours[f"captured, slot {slot}"].value, theirs[f"captured, slot {slot}"].value
        assert one["shape"] == other["shape"]
        assert one["norm"] == pytest.approx(other["norm"], rel=1e-4)
        assert one["first"] == pytest.approx(other["first"], abs=1e-3)
    assert ours["fc input"].ok
    assert ours["first proposals"].value == theirs["first proposals"].value
