"""Rounds out of streams, for any rounds, chunks and end of text: what the reference's rule makes of the same rounds."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from harness.counts.rounds import Limits, RoundCounter
from harness.counts.run import histogram_of
from harness.engines.server.client import failure
from harness.engines.server.decoding import Known, decode
from harness.engines.server.info import SglangInfo
from harness.errors import EngineError
from harness.pair.prompts import Prompt

K, LIMIT, EOS, VOCAB = 3, 12, 9, 10
PROMPT = Prompt("p", "c", (1, 2), "0" * 16)
INFO = SglangInfo("http://h:1", Version("0.5.23"), {}, {})


@dataclass
class _Scripted:
    """Stands for the client: answers as SGLang does, from rounds that are given.

    Attributes:
        text: The continuation, longer than is ever asked for.
        rounds: Accepted counts, more than are ever asked for.
        chunks: How many rounds each chunk holds, in turn.
        asked: Tokens asked for, by request.
    """

    text: tuple[int, ...]
    rounds: tuple[int, ...]
    chunks: tuple[int, ...]
    changes: dict[str, Any] = field(default_factory=dict)
    endpoint: str = "http://h:1"
    asked: list[int] = field(default_factory=list)

    async def events(self, path: str, body: dict[str, Any], what: str) -> list[Any]:
        del path, what
        limit = body["sampling_params"]["max_new_tokens"]
        self.asked.append(limit)
        out, ends, made, sizes = 1, [1], [], list(self.chunks)
        left = sizes[0]
        for accepted in self.rounds:
            if out >= limit:
                break
            made.append(accepted)
            out, left = out + accepted + 1, left - 1
            if left == 0:
                ends.append(min(out, limit))
                sizes.append(sizes.pop(0))
                left = sizes[0]
        if ends[-1] < min(out, limit):
            ends.append(min(out, limit))
        events = [
            {"output_ids": list(self.text[:end]), "meta_info": {"completion_tokens": end, "finish_reason": None}}
            for end in ends
        ]
        if made:
            proposed = K * len(made)
            events[-1]["meta_info"] |= {  # type: ignore[operator]
                "spec_verify_ct": len(made),
                "spec_num_correct_drafts": sum(made),
                "spec_num_proposed_drafts": proposed,
                "spec_accept_rate": sum(made) / proposed,
                "spec_correct_drafts_histogram": histogram_of(made, K),
            } | self.changes
        return events

    def fail(self, asked: str, came: str, next_step: str) -> NoReturn:
        raise failure(self.endpoint, asked, came, next_step)


def _expected(text: tuple[int, ...], rounds: tuple[int, ...]) -> tuple[RoundCounter, tuple[int, ...]]:
    """Decode as the reference does: round by round until the limit or the end of the text."""
    counter, out = RoundCounter(Limits(LIMIT, K, (EOS,))), text[:1]
    for accepted in rounds:
        if len(out) >= LIMIT or EOS in out:
            break
        out += counter.add(K, accepted, text[len(out) : len(out) + accepted + 1])
    return counter, out


_ROUNDS = st.lists(st.integers(0, K), min_size=LIMIT + K, max_size=LIMIT + K).map(tuple)
_CHUNKS = st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple)


@given(_ROUNDS, _CHUNKS, st.none() | st.integers(0, LIMIT + K - 1))
def test_any_rounds_in_any_chunks(rounds: tuple[int, ...], chunks: tuple[int, ...], end: int | None) -> None:
    text = tuple(EOS if index == end else index % 7 for index in range(LIMIT + 4 * K))
    client = _Scripted(text, rounds, chunks)
    measured = asyncio.run(decode(client, INFO, PROMPT, Limits(LIMIT, K, (EOS,)), VOCAB))  # type: ignore[arg-type]
    counter, out = _expected(text, rounds)
    record = measured.record
    assert measured.known is not Known.NOTHING
    assert record.histogram == histogram_of(counter.rounds, K)
    assert record.eos_round == counter.eos_round
    assert record.continuation == out
    if set(chunks) == {1}:
        assert measured.known is Known.ORDERED
        assert client.asked == [LIMIT + K]
    if measured.known is Known.ORDERED:
        assert record.rounds == tuple(counter.rounds)
    else:
        assert record.rounds is None
        # The whole text, the text up to where counting ends, and at most each start that its last round can have.
        assert len(client.asked) <= 2 + K + 1


def test_chunks_that_hold_more_than_a_round_can_make() -> None:
    """As many chunks as rounds, and one of them too long: whatever was counted, it is not this stream."""
    client = _Scripted(tuple(range(7)) * 9, (0, 3, 0, 3, 0, 3, 0, 3, 0, 3), (2, 1), {"spec_verify_ct": 4})
    with pytest.raises(EngineError, match="contradict each other"):
        asyncio.run(decode(client, INFO, PROMPT, Limits(LIMIT, K, (EOS,)), VOCAB))  # type: ignore[arg-type]
