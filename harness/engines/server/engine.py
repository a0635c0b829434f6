"""The engine adapter: measures a pair on a running server and returns what every engine returns."""

from __future__ import annotations

import contextlib
import platform
import time
from collections.abc import Collection, Iterator, Sequence

from harness.counts.run import PromptRecord, Run
from harness.engines.base import Continuations, Progress
from harness.engines.reference.loaded import limits_of
from harness.engines.server.client import PLAIN_KEY_VARIABLE, Client
from harness.engines.server.decoding import Known, Measured, decode
from harness.engines.server.fit import dtype_of, require_fit, require_plain, require_vllm_fit, require_vocabulary
from harness.engines.server.info import SglangInfo, VllmInfo, read_info
from harness.engines.server.judging import HttpAsked
from harness.engines.server.vllm import measure_sums
from harness.engines.sglang.engine import judge
from harness.errors import InputError
from harness.pair.pair import Pair
from harness.pair.prompts import Prompt

__all__ = ["ServerEngine", "as_served"]


def as_served(pair: Pair, stated: Collection[str]) -> Pair:
    """Return a pair as the server of its endpoint serves it: its reading of the ids, its device and dtype.

    Args:
        pair: The pair.
        stated: Which of `device` and `dtype` were asked for, and must be the server's.

    Raises:
        InputError: There is no such server, or the pair cannot be measured on it as stated.
        EngineError: It fails.
    """
    with _client(pair) as client:
        info = client.run(read_info(client))
    if isinstance(info, VllmInfo):
        require_vllm_fit(info, pair)
        return pair.served_as("vllm")
    require_fit(info, pair)
    told = {"device": info.device, "dtype": dtype_of(info, pair)}
    for key in sorted(stated):
        asked = getattr(pair.settings.engine, key)
        if asked.partition(":")[0] != told[key]:
            raise InputError(
                f"the server has another {key} than was asked for",
                file=info.endpoint,
                key=key,
                found=told[key],
                expected=f"{asked}, by engine.{key} or --{key}",
                next_step="leave it out: a server says it itself",
            )
    return pair.with_engine(**told).served_as(f"sglang=={info.version}")


class ServerEngine:
    """A running server; see `harness.engines.base.Engine`."""

    def run(self, pair: Pair, prompts: Sequence[Prompt], texts: Continuations | None, progress: Progress) -> Run:
        """Run the pair.

        Raises:
            InputError: The server does not fit the pair.
            EngineError: It fails, or counts what contradicts its own output.
        """
        begun = time.perf_counter()
        limits = limits_of(pair)
        with _client(pair) as client:
            info = client.run(read_info(client))
            aggregate: tuple[int, ...] | None = None
            if isinstance(info, VllmInfo):
                notes = list(require_vllm_fit(info, pair))
                records, aggregate = measure_sums(client, info, prompts, limits, progress)
            else:
                notes = list(require_fit(info, pair))
                client.run(require_vocabulary(client, info, pair))
                if pair.settings.engine.plain_endpoint and texts is not None:
                    # What cannot judge is told before anything is decoded.
                    with _plain_client(pair):
                        pass
                measured = _decode(client, info, pair, prompts, progress)
                records = [one.record for one in measured]
                notes += _unknown(measured)
                if texts is not None:
                    records, retried = _judge(client, pair, prompts, records, texts, progress)
                    notes += retried
            notes += _retried(client)
        kind = "vllm" if isinstance(info, VllmInfo) else "sglang"
        return Run(
            engine=f"server:{kind}",
            device=pair.settings.engine.device,
            dtype=pair.settings.engine.dtype,
            num_steps=limits.num_steps,
            records=tuple(records),
            versions={"python": platform.python_version(), kind: str(info.version)},
            seconds=time.perf_counter() - begun,
            aggregate=aggregate,
            served=info.described(),
            notes=tuple(notes),
        )


def _client(pair: Pair) -> Client:
    engine = pair.settings.engine
    return Client(engine.endpoint, engine.timeouts, engine.concurrency, file=pair.file)


@contextlib.contextmanager
def _plain_client(pair: Pair) -> Iterator[Client]:
    """Open the plain endpoint.

    Raises:
        InputError: It speculates, or serves another target.
        EngineError: It fails.
    """
    engine = pair.settings.engine
    with Client(
        engine.plain_endpoint,
        engine.timeouts,
        engine.concurrency,
        key="engine.plain_endpoint or --plain-endpoint",
        key_variable=PLAIN_KEY_VARIABLE,
        file=pair.file,
    ) as plain:
        info = plain.run(read_info(plain))
        require_plain(info, pair)
        if isinstance(info, SglangInfo):
            plain.run(require_vocabulary(plain, info, pair))
        yield plain


def _decode(
    client: Client, info: SglangInfo, pair: Pair, prompts: Sequence[Prompt], progress: Progress
) -> list[Measured]:
    limits = limits_of(pair)
    progress.begin(f"speculative decoding by SGLang {info.version} at {info.endpoint}", len(prompts))

    async def one(prompt: Prompt) -> Measured:
        return await decode(client, info, prompt, limits, pair.target.vocab_size)

    return client.each(one, prompts, progress)


def _judge(
    client: Client,
    pair: Pair,
    prompts: Sequence[Prompt],
    records: list[PromptRecord],
    texts: Continuations,
    progress: Progress,
) -> tuple[list[PromptRecord], list[str]]:
    """Have the target judge output and golden texts: that of the plain endpoint, or the speculating server's own."""
    limits = limits_of(pair)
    if not pair.settings.engine.plain_endpoint:
        return judge(HttpAsked(client), prompts, records, texts, limits, progress), []
    with _plain_client(pair) as plain:
        judged = judge(HttpAsked(plain), prompts, records, texts, limits, progress)
        return judged, [f"the target was asked at {plain.endpoint}, without speculation", *_retried(plain)]


def _unknown(measured: Sequence[Measured]) -> list[str]:
    """Tell of prompts whose rounds are not known in order, or not at all."""
    counted = sum(one.known is Known.COUNTED for one in measured)
    nothing = [one.record.id for one in measured if one.known is Known.NOTHING]
    notes = []
    if counted:
        notes.append(
            f"the rounds of {counted} of {len(measured)} prompts are known by their counts, not in order: the server's "
            "chunks held several"
        )
    if nothing:
        notes.append(
            f"{len(nothing)} of {len(measured)} prompts count nothing, first {nothing[0]!r}: the server's chunks held "
            "several rounds, and it decodes the prompt otherwise when it is asked again"
        )
    return notes


def _retried(client: Client) -> list[str]:
    if not client.retried:
        return []
    return [f"{len(client.retried)} requests were sent again, as no answer had begun; first {client.retried[0]}"]
