"""From what SGLang answers and what its hooks wrote to a record, and every way in which the two can disagree."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from harness.counts.rounds import Limits
from harness.counts.run import EosRound, PromptRecord
from harness.engines.base import Progress
from harness.engines.sglang.engine import decode
from harness.engines.sglang.launch import RunningEngine
from harness.engines.sglang.rounds import Capture, read_capture
from harness.engines.shared.sglang_target import SglangGenerator, judge_by_sglang
from harness.errors import EngineError
from harness.pair.prompts import Prompt

PROMPT = Prompt(id="p", category="c", ids=(1, 2, 3), hash="h")
EOS = 9
LIMITS = Limits(max_new_tokens=7, num_steps=2, eos_ids=(EOS,))
# The prefill puts out 10; then rounds of: the last known token and the chain, the target's choices, the count.
ROUNDS = (((10, 11, 12), (11, 12, 13), 2), ((13, 50, 51), (14, 60, 61), 0), ((14, 15, 52), (15, 16, 62), 1))
OUTPUT = [10, 11, 12, 13, 14, 15, 16]
META: dict[str, Any] = {
    "spec_accept_rate": 0.5,
    "spec_num_correct_drafts": 3,
    "spec_num_proposed_drafts": 6,
    "spec_verify_ct": 3,
    "spec_correct_drafts_histogram": [1, 1, 1],
    "finish_reason": {"type": "length"},
}


@dataclass
class _FakeEngine:
    """A FAKE engine, which answers as it is told, and whose hooks write what they are told."""

    watch: Path
    output: Sequence[int] = tuple(OUTPUT)
    meta: dict[str, Any] = field(default_factory=lambda: dict(META))
    rounds: Sequence[Any] = ROUNDS
    rank: int = 0

    def generate(self, *, rid: list[str], **_arguments: Any) -> list[dict[str, Any]]:
        lines = [
            {"rank": self.rank, "event": "round", "rows": [["another", [0, 0, 0], [0, 0, 0], 0], [rid[0], *one]]}
            for one in self.rounds
        ]
        (self.watch / "watch-7.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return [{"output_ids": list(self.output), "meta_info": self.meta}]


def _decode(folder: Path, limits: Limits = LIMITS, **changes: Any) -> PromptRecord:
    (record,) = decode(cast(RunningEngine, _FakeEngine(folder, **changes)), [PROMPT], limits)
    return record


def test_a_record(tmp_path: Path) -> None:
    record = _decode(tmp_path)
    assert (record.id, record.prompt_tokens) == ("p", 3)
    assert record.rounds == (2, 0, 1)
    assert record.histogram == (1, 1, 1)
    assert record.chains == ((11, 12), (50, 51), (15, 52))
    assert record.continuation == tuple(OUTPUT)
    assert record.eos_round is None


def test_the_last_round_counts_in_full(tmp_path: Path) -> None:
    """SGLang cuts its output at the limit, the record keeps what the round made."""
    limits = Limits(max_new_tokens=6, num_steps=2, eos_ids=(EOS,))
    record = _decode(tmp_path, limits, output=OUTPUT[:6])
    assert record.rounds == (2, 0, 1)
    assert record.continuation == tuple(OUTPUT)


def test_what_comes_after_the_end_of_the_text_does_not_count(tmp_path: Path) -> None:
    limits = Limits(max_new_tokens=7, num_steps=2, eos_ids=(12,))
    record = _decode(tmp_path, limits)
    assert record.eos_round == EosRound(proposed=2, accepted=2)
    assert record.rounds == ()
    assert record.continuation == (10, 11, 12)


def test_a_round_of_a_finished_request_does_not_count(tmp_path: Path) -> None:
    """With overlapping batches SGLang runs one more, which it does not count itself."""
    assert _decode(tmp_path, rounds=(*ROUNDS, ((16, 1, 1), (1, 1, 1), 2))).rounds == (2, 0, 1)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"rounds": ROUNDS[:2]}, "its verification was seen to make [1, 0, 1]"),
        ({"rounds": ()}, "its verification was seen to make [0, 0, 0]"),
        # What another rank writes is not what the first one did.
        ({"rank": 1}, "its verification was seen to make [0, 0, 0]"),
        ({"rounds": (((10, 11, 77), (11, 12, 13), 2), *ROUNDS[1:])}, "SGLang accepts 2 of [11, 77]"),
        ({"output": [10, 11, 12, 13, 14, 99, 16]}, "its rounds make [10, 11, 12, 13, 14, 15, 16]"),
        ({"output": []}, "ended after 0 of 7 tokens"),
    ],
)
def test_a_contradiction(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(EngineError, match="'p'") as caught:
        _decode(tmp_path, **changes)
    assert told in str(caught.value)


def test_it_ended_early(tmp_path: Path) -> None:
    limits = Limits(max_new_tokens=20, num_steps=2, eos_ids=(EOS,))
    with pytest.raises(EngineError, match=r"ended after 7 of 20 tokens, by .*length"):
        _decode(tmp_path, limits)


def test_what_is_captured(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="hooks do not run"):
        read_capture(tmp_path)
    line = {"rank": 0, "event": "capture", "model": "M", "ids": [1, 3], "layers_to_capture": [2, 4]}
    (tmp_path / "watch-1.jsonl").write_text(json.dumps(line) + "\n")
    assert read_capture(tmp_path) == Capture("M", (1, 3), (2, 4))


class _Judging:
    """A FAKE engine, whose target chooses `choices` after a prompt, whatever it is shown."""

    def __init__(self, *choices: int) -> None:
        self.choices, self.flushed, self.asked = choices, 0, 0

    def flush_cache(self) -> None:
        self.flushed += 1

    def generate(self, *, input_ids: list[list[int]], logprob_start_len: list[int], **_: Any) -> list[dict[str, Any]]:
        self.asked += len(input_ids)
        answers = []
        for ids, start in zip(input_ids, logprob_start_len, strict=True):
            text = ids[start + 1 :]
            top = [None, *([[-0.5, choice, None]] for choice in self.choices[: len(text)])]
            pairs = zip(text, self.choices[: len(text)], strict=True)
            given = [[None, 0, None], *([-0.5 if token == best else -2.5, token, None] for token, best in pairs)]
            answers.append({"output_ids": [], "meta_info": {"input_top_logprobs": top, "input_token_logprobs": given}})
        return answers


def _judge(tmp_path: Path, engine: _Judging, golden: tuple[int, ...]) -> PromptRecord:
    record = _decode(tmp_path)
    target = cast(SglangGenerator, engine)
    (judged,) = judge_by_sglang(target, [PROMPT], [record], {"p": golden}, LIMITS.cut, Progress())
    return judged


def test_the_target_agrees(tmp_path: Path) -> None:
    golden = (*OUTPUT, 17, 18)
    engine = _Judging(*golden)
    judged = _judge(tmp_path, engine, golden)
    assert judged.own is not None
    assert judged.target is not None
    assert (judged.own.agrees.tolist(), judged.target.agrees.tolist()) == ([True] * 7, [True] * 9)
    assert judged.deterministic is None
    assert engine.asked == 1, "the output is the beginning of the golden text: one forward judges both"


def test_the_target_disagrees_with_the_golden_text_alone(tmp_path: Path) -> None:
    golden = (10, 11, 80, 81, 82, 83, 84, 85, 86)
    judged = _judge(tmp_path, _Judging(*OUTPUT, 17, 18), golden)
    assert judged.own is not None
    assert judged.target is not None
    assert judged.own.agrees.all()
    assert judged.target.agrees.tolist() == [True, True, *[False] * 7]
    assert judged.target.gaps[2] == pytest.approx(2.0)
    assert judged.deterministic is None


def test_the_target_disagrees_with_the_output(tmp_path: Path) -> None:
    engine = _Judging(10, 11, 12, 99, 14, 15, 16, 17, 18)
    judged = _judge(tmp_path, engine, (*OUTPUT, 17, 18))
    assert judged.own is not None
    assert judged.own.agrees.tolist() == [True, True, True, False, True, True, True]
    assert judged.deterministic is True
    assert (engine.flushed, engine.asked) == (1, 2)
