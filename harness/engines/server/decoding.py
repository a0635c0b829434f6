"""One prompt on an SGLang server: a stream of chunks and the request's counters, made into the reference's rounds.

SGLang sends a request's counters at its end and its tokens as they come. A chunk is one verify round unless several
have coalesced, on a slow connection or with `stream_interval` above 1. If there are as many chunks as rounds were
counted, the rounds are known in order, and must make up the histogram. If there are not, the histogram of the rounds
up to any token is still available: by asking for no more tokens than that, since SGLang counts its last round in
full. So the rule for the last round and for the end of the text is the reference's own in both cases.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from harness.counts.rounds import Limits, RoundCounter
from harness.counts.run import PromptRecord, histogram_of
from harness.engines.server.client import Client
from harness.engines.server.info import SglangInfo
from harness.engines.server.sampling import SENT
from harness.engines.shared.decoded import Decoded, to_record
from harness.engines.shared.sglang_counters import Counters, read_counters
from harness.errors import EngineError, InputError
from harness.pair.prompts import Prompt

__all__ = ["Known", "Measured", "decode"]

_COUNTS = "see whether the server's release counts as it says (spec_* in meta_info), and report it to the harness"
_TARGET = "give the pair file the target that the server runs, or name another server"


class Known(enum.Enum):
    """How much of a prompt's rounds could be known."""

    ORDERED = "each round, in order"
    COUNTED = "how many rounds accepted how many tokens"
    NOTHING = "nothing: the server decodes the prompt differently each time"


@dataclass(frozen=True)
class Measured:
    """One prompt's record and how it was come by.

    Attributes:
        record: The record; it counts nothing if nothing is known.
        known: How much could be known.
    """

    record: PromptRecord
    known: Known


@dataclass(frozen=True)
class _Heard:
    """One request's answer.

    Attributes:
        output: Its tokens, no more than were asked for.
        ends: Tokens out after each chunk that brought some.
        counters: What was counted over all its rounds, the last in full.
    """

    output: tuple[int, ...]
    ends: tuple[int, ...]
    counters: Counters

    @property
    def end(self) -> int:
        """Tokens out after the last round, those past what was asked for included; the first is the prefill's."""
        return 1 + self.counters.correct + self.counters.rounds


class _WaversError(Exception):
    """The server decoded a prompt differently from a moment ago."""


async def decode(client: Client, info: SglangInfo, prompt: Prompt, limits: Limits, vocab_size: int) -> Measured:
    """Decode a prompt and count its rounds as the reference engine does.

    Args:
        client: The server.
        info: What it says of itself.
        prompt: What the server is given to continue.
        limits: What ends a text.
        vocab_size: The number of tokens that the pair's target knows; an output id past it is another target's.

    Raises:
        InputError: The server runs another target.
        EngineError: It fails, or what it answers contradicts itself.
    """
    asker = _Asker(client, info, prompt, limits.num_steps, vocab_size)
    # As many more as the last round can go past the limit: the end of the continuation may be there.
    heard = await asker.ask(limits.text_length)
    rounds = _ordered(heard, limits.num_steps, asker)
    if rounds is not None:
        return Measured(_walked(prompt, heard, rounds, limits), Known.ORDERED)
    try:
        return Measured(await _counted(prompt, heard, limits, asker), Known.COUNTED)
    except _WaversError:
        nothing = Decoded(list(heard.output), RoundCounter(limits))
        return Measured(replace(to_record(prompt, nothing), rounds=None, chains=None), Known.NOTHING)


class _Asker:
    """Asks a server for one prompt's continuation, shorter or longer."""

    def __init__(self, client: Client, info: SglangInfo, prompt: Prompt, num_steps: int, vocab_size: int) -> None:
        self._client = client
        self._prompt = prompt
        self._k = num_steps
        self._vocab_size = vocab_size
        # Only for releases whose source was read; another would refuse the request.
        known = info.stream_interval != 1 and info.checks_ids
        self._sampling: dict[str, Any] = SENT | ({"stream_interval": 1} if known else {})
        self.what = f"prompt {prompt.id!r}"

    async def ask(self, tokens: int, *, like: Sequence[int] | None = None) -> _Heard:
        """Ask for so many tokens.

        Raises:
            _WaversError: They are not those of `like`.
        """
        body = {
            "input_ids": list(self._prompt.ids),
            "sampling_params": self._sampling | {"max_new_tokens": tokens},
            "stream": True,
        }
        heard = self._read(await self._client.events("/generate", body, self.what), tokens)
        if like is not None and heard.output != tuple(like[:tokens]):
            raise _WaversError
        return heard

    def fail(self, came: str, next_step: str = _COUNTS) -> EngineError:
        """Return the error of an answer that cannot be."""
        try:
            self._client.fail(f"POST /generate for {self.what}", came, next_step)
        except EngineError as error:
            return error

    def _read(self, events: Sequence[Any], tokens: int) -> _Heard:
        output: list[int] = []
        ends: list[int] = []
        meta: Mapping[str, Any] = {}
        for event in events:
            if isinstance(event, dict) and "error" in event:
                raise self.fail(f"answered the error {event['error']!r}", "see the server's log")
            ids, meta = self._chunk(event)
            total = meta["completion_tokens"]
            # The list may have grown while the chunk waited to be written.
            ids = ids[:total]
            # Chunks hold all tokens so far, or only the new ones if the server streams incrementally.
            if len(ids) != total:
                ids = [*output, *ids]
            if len(ids) != total or ids[: len(output)] != output:
                raise self.fail(f"counts {total} tokens, but its chunks hold {len(ids)}")
            if total > len(output):
                ends.append(total)
            output = ids
        reason = meta.get("finish_reason")
        if len(output) != tokens:
            raise self.fail(f"ended after {len(output)} of {tokens} tokens, by {reason}", "see the server's log")
        self._require_known(output)
        if meta.get("num_retractions"):
            raise self.fail(
                "ran out of cache, retracted the request and started it again, which makes other rounds",
                "lower engine.concurrency, or measure when no other client uses the server",
            )
        return _Heard(tuple(output), tuple(ends), self._counters(meta, len(output)))

    def _chunk(self, event: Any) -> tuple[list[int], Mapping[str, Any]]:
        try:
            ids, meta = event["output_ids"], event["meta_info"]
            usable = all(type(token) is int for token in ids) and type(meta["completion_tokens"]) is int
        except (KeyError, TypeError):
            usable = False
        if not usable:
            raise self.fail(
                f"answered a chunk of another shape: {str(event)[:200]}; output_ids and "
                "meta_info.completion_tokens are expected",
                "check that the address is an SGLang server's own",
            )
        return list(ids), meta

    def _require_known(self, output: Sequence[int]) -> None:
        past = next((token for token in output if not 0 <= token < self._vocab_size), None)
        if past is not None:
            raise InputError(
                "the server runs another target",
                file=self._client.endpoint,
                key=self.what,
                found=f"token {past}",
                expected=f"tokens below {self._vocab_size}, the pair's vocabulary",
                next_step=_TARGET,
            )

    def _counters(self, meta: Mapping[str, Any], length: int) -> Counters:
        try:
            counters = read_counters(meta, num_steps=self._k, num_draft_tokens=self._k + 1)
        except (EngineError, TypeError, ValueError, ZeroDivisionError) as error:
            raise self.fail(f"{error}") from None
        last = 1 + counters.correct + counters.rounds
        if length > 1 and not counters.rounds:
            raise self.fail(f"output {length} tokens without spec_verify_ct: it does not report what it accepts")
        if length and not length <= last <= length + self._k:
            raise self.fail(
                f"counters contradict the output: {counters.rounds} rounds with {counters.correct} accepted make "
                f"{last} tokens with the first, {length} came"
            )
        return counters


def _ordered(heard: _Heard, k: int, asker: _Asker) -> tuple[int, ...] | None:
    """Return the accepted count of each round in order; `None` if chunks have coalesced.

    Raises:
        EngineError: The chunks make up another histogram than was counted.
    """
    # The prefill's token may have come together with a round's.
    starts = sorted({1, *heard.ends})
    grown = [after - before - 1 for before, after in pairwise(starts)]
    if len(grown) < heard.counters.rounds:
        return None
    counted = heard.counters.histogram
    if len(grown) == heard.counters.rounds and all(accepted <= k for accepted in grown):
        if not grown:
            return ()
        # The last chunk is cut at the limit, the last round is not.
        rest = [whole - part for whole, part in zip(counted, histogram_of(grown[:-1], k), strict=True)]
        if min(rest) == 0 and sum(rest) == 1 and rest.index(1) >= grown[-1]:
            return (*grown[:-1], rest.index(1))
    raise asker.fail(
        f"counts rounds by accepted tokens as {list(counted)}, its chunks brought {grown} besides each round's own"
    )


def _walked(prompt: Prompt, heard: _Heard, rounds: Sequence[int], limits: Limits) -> PromptRecord:
    """Count rounds that are known in order, by the reference's rule."""
    decoded = Decoded(list(heard.output[:1]), RoundCounter(limits))
    for accepted in rounds:
        if not decoded.going():
            break
        out = len(decoded.continuation)
        emitted = heard.output[out : out + accepted + 1]
        decoded.continuation.extend(decoded.counter.add(limits.num_steps, accepted, emitted))
    # A server does not report the proposed tokens that were not accepted.
    return replace(to_record(prompt, decoded), chains=None)


async def _counted(prompt: Prompt, heard: _Heard, limits: Limits, asker: _Asker) -> PromptRecord:
    """Count rounds whose order is not known, by asking again for the continuation up to the last token that counts."""
    end_of_text = next((index for index, token in enumerate(heard.output) if token in limits.eos_ids), None)
    ends_within = end_of_text is not None and end_of_text < limits.max_new_tokens
    counted = await asker.ask(
        end_of_text + 1 if ends_within and end_of_text is not None else limits.max_new_tokens, like=heard.output
    )
    decoded = Decoded(list(heard.output[: counted.end]), RoundCounter(limits))
    histogram = counted.counters.histogram
    if end_of_text is not None and end_of_text < counted.end:
        decoded.continuation = list(heard.output[: end_of_text + 1])
        if end_of_text > 0:
            # The round that output the end is the last that was counted: none starts past it.
            last, histogram = await _without_last(heard, counted, end_of_text, asker)
            emitted = heard.output[counted.end - last - 1 : counted.end]
            decoded.counter.add(limits.num_steps, last, emitted)
    return replace(to_record(prompt, decoded), rounds=None, histogram=histogram, chains=None)


async def _without_last(heard: _Heard, counted: _Heard, within: int, asker: _Asker) -> tuple[int, tuple[int, ...]]:
    """Return the accepted count of the last round, which output a token, and the histogram of those before it.

    Raises:
        _WaversError: The server gives no rounds that fit.
    """
    for accepted, count in enumerate(counted.counters.histogram):
        start = counted.end - accepted - 1
        if not count or not 1 <= start <= within:
            continue
        rest = tuple(number - (index == accepted) for index, number in enumerate(counted.counters.histogram))
        before = await asker.ask(start, like=heard.output)
        if before.end == start and before.counters.histogram == rest:
            return accepted, rest
    raise _WaversError
