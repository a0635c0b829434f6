"""A vLLM server: its sums before and after the prompts, and whether other clients' requests are in them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from harness.counts.rounds import Limits
from harness.counts.run import PromptRecord
from harness.engines.base import Progress
from harness.engines.server.client import Client
from harness.engines.server.info import VllmInfo
from harness.engines.server.metrics import Sums, read_sums
from harness.errors import InputError
from harness.pair.prompts import Prompt

__all__ = ["measure_each", "measure_sums"]

_METRICS = "GET /metrics"
# How long vLLM may take until a request that was answered is in its sums.
_SETTLES = 10.0
_PAUSE = 0.1
_ALONE = "measure when no other client uses the server"


def measure_sums(
    client: Client, info: VllmInfo, prompts: Sequence[Prompt], limits: Limits, progress: Progress
) -> tuple[list[PromptRecord], tuple[int, ...]]:
    """Send prompts to a vLLM server and read what that adds to its sums.

    Returns:
        Records that count nothing, in the prompts' order, and the rounds by accepted count over all prompts.

    Raises:
        InputError: The server does not speculate, or proposes chains of another length.
        EngineError: It fails, its counters contradict each other, or other clients used it in between.
    """
    before = client.run(_read(client))
    if before.running:
        client.fail(_METRICS, f"{before.running} requests of other clients run", _ALONE)
    # A server that speculates has them from its start.
    _require_length(client, before, limits.num_steps)
    progress.begin(f"completions by vLLM {info.version}", len(prompts))

    async def complete(prompt: Prompt) -> int:
        return await _complete(client, info, prompt, limits)

    generated = client.each(complete, prompts, progress)
    after = client.run(_settled(client, before.requests + len(prompts)))
    added = after.since(before)
    for what, found, sent in (
        ("requests", added.requests, len(prompts)),
        ("generated tokens", added.generated, sum(generated)),
    ):
        if found != sent:
            client.fail(
                _METRICS,
                f"counted {found} {what}, but the harness' own are {sent}: other clients used the server",
                _ALONE,
            )
    _require_sound(client, added, limits.num_steps)
    return [_record(prompt, limits.num_steps) for prompt in prompts], added.histogram()


def measure_each(
    client: Client, info: VllmInfo, prompts: Sequence[Prompt], limits: Limits, progress: Progress
) -> list[PromptRecord]:
    """Send prompts to a vLLM server one at a time, so that its sums are each prompt's own; see `measure_sums`."""
    progress.begin(f"completions by vLLM {info.version}, one at a time", len(prompts))
    records = []
    for prompt in prompts:
        (record,), histogram = measure_sums(client, info, [prompt], limits, Progress())
        records.append(replace(record, histogram=histogram))
        progress.advance(1)
    return records


async def _read(client: Client) -> Sums:
    reply = await client.look("/metrics")
    try:
        return read_sums(reply.text)
    except (ValueError, KeyError, OverflowError) as error:
        client.fail(
            _METRICS, f"answered with something that cannot be read: {error}", "check that the address is vLLM's own"
        )


async def _settled(client: Client, requests: int) -> Sums:
    """Read the sums once all requests are in them, or when they should have been for long."""
    deadline = time.monotonic() + _SETTLES
    while True:
        sums = await _read(client)
        if sums.requests >= requests or time.monotonic() > deadline:
            return sums
        await asyncio.sleep(_PAUSE)


async def _complete(client: Client, info: VllmInfo, prompt: Prompt, limits: Limits) -> int:
    """Have a prompt completed and return how many tokens that were."""
    body: dict[str, Any] = {
        "model": info.model,
        "prompt": list(prompt.ids),
        "max_tokens": limits.max_new_tokens,
        "temperature": 0.0,
        # A server may have defaults of the model's own for these.
        "top_p": 1.0,
        "repetition_penalty": 1.0,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
    }
    what = f"prompt {prompt.id!r}"
    _, answer = await client.ask("/v1/completions", body, what)
    try:
        count = answer["usage"]["completion_tokens"]
    except (KeyError, TypeError):
        count = None
    if type(count) is not int:
        client.fail(
            f"POST /v1/completions for {what}",
            f"answered without usage.completion_tokens: {str(answer)[:200]}",
            "check that the address is vLLM's own",
        )
    return int(count)


def _require_length(client: Client, sums: Sums, num_steps: int) -> None:
    if not sums.reached:
        raise InputError(
            "the server runs without speculation",
            file=client.endpoint,
            key="vllm:spec_decode_num_accepted_tokens_per_pos in /metrics",
            found="nothing",
            expected="vLLM with a --speculative-config of method eagle3",
        )
    if len(sums.reached) != num_steps:
        raise InputError(
            "the server proposes chains of another length",
            file=client.endpoint,
            key="num_speculative_tokens",
            found=len(sums.reached),
            expected=f"{num_steps}, by --k or the pair's decode.num_steps",
            next_step="start the server with this length, or measure with the server's: --k",
        )


def _require_sound(client: Client, added: Sums, num_steps: int) -> None:
    """Check the sums against each other, as they must be for chains of one length."""
    identities = (
        ("tokens accepted by position", sum(added.reached), "tokens accepted", added.accepted),
        (f"rounds times {num_steps}", added.drafts * num_steps, "tokens proposed", added.proposed),
    )
    for left, found, right, expected in identities:
        if found != expected:
            client.fail(
                _METRICS,
                f"counters contradict each other: {left} are {found}, {right} are {expected}",
                "see whether the server restarted or cuts its chains, and report it to the harness",
            )
    if min(added.histogram()) < 0:
        client.fail(_METRICS, f"counts rounds by position as {list(added.reached)} of {added.drafts}", _ALONE)


def _record(prompt: Prompt, num_steps: int) -> PromptRecord:
    return PromptRecord(
        id=prompt.id,
        category=prompt.category,
        prompt_hash=prompt.hash,
        prompt_tokens=len(prompt.ids),
        continuation=(),
        rounds=None,
        histogram=(0,) * (num_steps + 1),
    )
