"""The engine adapter: measures a pair on a running server and returns what every engine returns."""

from __future__ import annotations

import platform
import time
from collections.abc import Collection, Sequence
from dataclasses import replace

from harness.counts.run import PromptRecord, Run
from harness.engines.base import Continuations, Progress, RecordGuide, Recording
from harness.engines.server.client import KEY_VARIABLE, PLAIN_KEY_VARIABLE, Client
from harness.engines.server.decoding import Known, Measured, decode
from harness.engines.server.fit import dtype_of, require_fit, require_plain, require_vllm_fit, require_vocabulary
from harness.engines.server.info import SglangInfo, VllmInfo, read_info
from harness.engines.server.judging import HttpGenerator
from harness.engines.server.trust import (
    how_to_trust,
    is_trusted,
    option_of,
    require_own_golden_texts,
    require_own_texts,
)
from harness.engines.server.vllm import measure_each, measure_sums
from harness.engines.shared.repeats import in_order, shuffled
from harness.engines.shared.sglang_target import judge_by_sglang
from harness.errors import InputError
from harness.pair.pair import Pair
from harness.pair.prompts import Prompt

__all__ = ["ServerEngine", "as_served"]


Info = SglangInfo | VllmInfo


def as_served(pair: Pair, stated: Collection[str]) -> Pair:
    """Return a pair as the server at its endpoint serves it: its reading of the ids, its device and dtype.

    What the server says about itself is kept with the pair, and is not asked for again when the pair is run.

    Args:
        pair: As read from its files, with a server as its engine.
        stated: Which of `device` and `dtype` were asked for, and must be the server's.

    Raises:
        InputError: The server is not there, or the pair cannot be measured on it as stated.
        EngineError: It fails.
    """
    with _client(pair) as client:
        info = client.run(read_info(client))
    if isinstance(info, VllmInfo):
        require_vllm_fit(info, pair)
        return replace(pair.served_as("vllm"), engine_info=info)
    require_fit(info, pair)
    reported = {"device": info.device, "dtype": dtype_of(info, pair)}
    for key in sorted(stated):
        asked = getattr(pair.settings.engine, key)
        if asked.partition(":")[0] != reported[key]:
            raise InputError(
                f"the server's {key} differs from the one asked for",
                file=info.endpoint,
                key=key,
                found=reported[key],
                expected=f"{asked}, by engine.{key} or --{key}",
                next_step="leave it out: the server reports its own",
            )
    return replace(pair.with_engine(**reported).served_as(f"sglang=={info.version}"), engine_info=info)


class ServerEngine:
    """A running server; see `harness.engines.base.Engine`."""

    def run(
        self, pair: Pair, prompts: Sequence[Prompt], continuations: Continuations | None, progress: Progress
    ) -> Run:
        """Run the pair.

        Raises:
            InputError: The server does not fit the pair.
            EngineError: It fails, or counts what contradicts its own output.
        """
        begun = time.perf_counter()
        limits = pair.limits
        with _client(pair) as client:
            info = _info(client, pair)
            aggregate: tuple[int, ...] | None = None
            notes = _require_fit(client, info, pair)
            if isinstance(info, VllmInfo):
                records, aggregate = measure_sums(client, info, prompts, limits, progress)
            else:
                if continuations is not None:
                    judge = "plain_endpoint" if pair.settings.engine.plain_endpoint else "endpoint"
                    if not is_trusted(pair, judge):
                        require_own_golden_texts(pair, judge)
                    # A second server that cannot judge is refused before anything is decoded.
                    _require_plain_endpoint(pair)
                measured = _decode(client, info, pair, prompts, progress)
                records = [one.record for one in measured]
                notes += _unknown(measured)
                if continuations is not None:
                    records, retried = _judge(client, pair, prompts, records, continuations, progress)
                    notes += retried
            notes += [*_withheld(client), *_retried(client)]
        return _as_run(pair, info, records, begun, aggregate=aggregate, notes=tuple(notes))

    def text_versions(self) -> None:
        """Say that texts alone cannot be resumed: rounds are counted as they are decoded."""

    def record(self, pair: Pair, prompts: Sequence[Prompt], guide: RecordGuide, progress: Progress) -> Recording:
        """Measure the pair several times, to see how far the server differs from itself.

        A server batches its requests as they come and keeps prefixes from before. So the prompts are sent in other
        orders, with an empty prefix cache if the server empties it, and so many at once as well as half as many.

        Raises:
            InputError: The server does not fit the pair, or the golden would be misleading.
            EngineError: It fails, or counts what contradicts its own output.
        """
        begun = time.perf_counter()
        runs: list[Run] = []
        hows: list[str] = []
        kept = list(prompts)
        for seed, share in enumerate(_SHARES):
            concurrency = max(1, pair.settings.engine.concurrency // share)
            order = kept if seed == 0 else shuffled(kept, seed)
            # One client a run: the limit on its whole time begins anew.
            with _client(pair, concurrency) as client:
                info = _info(client, pair)
                notes = _require_fit(client, info, pair)
                flushed = seed > 0 and isinstance(info, SglangInfo) and client.run(client.flush_prefixes())
                if isinstance(info, VllmInfo):
                    records, how = measure_each(client, info, order, pair.limits, progress), "one prompt at a time"
                else:
                    measured = _decode(client, info, pair, order, progress)
                    records, how = [one.record for one in measured], f"{concurrency} prompts at once"
                    notes += _unknown(measured)
                notes += [*_withheld(client), *_retried(client)]
            if seed == 0:
                chosen = [guide.decoded(one, record.continuation) for one, record in zip(order, records, strict=True)]
                kept = [one for one, keep in zip(order, chosen, strict=True) if keep]
                records = [record for record, keep in zip(records, chosen, strict=True) if keep]
                guide.measured(records)
            ordered = in_order(records, runs[0].records if runs else records)
            runs.append(_as_run(pair, info, ordered, begun, notes=tuple(notes)))
            order_how = "in another order" if seed else "as listed"
            cache = f", {'with an empty prefix cache' if flushed else 'its prefix cache kept'}" if seed else ""
            hows.append(f"{order_how}, {how}{cache}")
        return Recording(runs[0], {}, again=tuple(runs[1:]), runs=tuple(hows))


# Runs of a record, each by the share of the pair's concurrency that it uses.
_SHARES = (1, 1, 2)


def _require_fit(client: Client, info: Info, pair: Pair) -> list[str]:
    """Refuse a server that does not fit the pair; return notes on what could not be asked."""
    if isinstance(info, VllmInfo):
        return list(require_vllm_fit(info, pair))
    notes = list(require_fit(info, pair))
    client.run(require_vocabulary(client, info, pair))
    return notes


def _as_run(
    pair: Pair,
    info: Info,
    records: Sequence[PromptRecord],
    begun: float,
    *,
    aggregate: tuple[int, ...] | None = None,
    notes: tuple[str, ...] = (),
) -> Run:
    kind = "vllm" if isinstance(info, VllmInfo) else "sglang"
    return Run(
        engine=f"server:{kind}",
        device=pair.settings.engine.device,
        dtype=pair.settings.engine.dtype,
        num_steps=pair.limits.num_steps,
        records=tuple(records),
        versions={"python": platform.python_version(), kind: str(info.version)},
        seconds=time.perf_counter() - begun,
        aggregate=aggregate,
        served=info.described(),
        notes=notes,
    )


def _client(
    pair: Pair, concurrency: int | None = None, *, setting: str = "endpoint", variable: str = KEY_VARIABLE
) -> Client:
    """Return a client of the server whose address a setting has.

    Args:
        pair: Its engine settings have the address.
        concurrency: Requests at once; the pair's own if `None`.
        setting: The setting that has the address.
        variable: The environment variable that has the server's key.

    Raises:
        InputError: The address is not one, or only the pair file names it and asks for text from elsewhere to be sent.
    """
    engine = pair.settings.engine
    trusted = is_trusted(pair, setting)
    if not trusted:
        require_own_texts(pair, setting)
    return Client(
        getattr(engine, setting),
        engine.timeouts,
        concurrency or engine.concurrency,
        key=f"engine.{setting} or {option_of(setting)}",
        key_variable=variable,
        with_key=trusted,
        how_to_trust=how_to_trust(pair, setting),
        file=pair.file,
    )


def _plain_client(pair: Pair) -> Client:
    return _client(pair, setting="plain_endpoint", variable=PLAIN_KEY_VARIABLE)


def _info(client: Client, pair: Pair) -> Info:
    """Return what the server says about itself: what it said when the pair was prepared, if it was asked then."""
    if isinstance(pair.engine_info, SglangInfo | VllmInfo):
        return pair.engine_info
    return client.run(read_info(client))


def _require_plain_endpoint(pair: Pair) -> None:
    """Refuse a plain endpoint that speculates or serves another target; do nothing if the pair has none.

    Raises:
        InputError: It cannot say what the target alone would choose.
        EngineError: It fails.
    """
    if not pair.settings.engine.plain_endpoint:
        return
    with _plain_client(pair) as plain:
        info = plain.run(read_info(plain))
        require_plain(info, pair)
        if isinstance(info, SglangInfo):
            plain.run(require_vocabulary(plain, info, pair))


def _decode(
    client: Client, info: SglangInfo, pair: Pair, prompts: Sequence[Prompt], progress: Progress
) -> list[Measured]:
    limits = pair.limits
    progress.begin(f"speculative decoding by SGLang {info.version} at {info.endpoint}", len(prompts))

    async def one(prompt: Prompt) -> Measured:
        return await decode(client, info, prompt, limits, pair.target.vocab_size)

    return client.each(one, prompts, progress)


def _judge(
    client: Client,
    pair: Pair,
    prompts: Sequence[Prompt],
    records: list[PromptRecord],
    continuations: Continuations,
    progress: Progress,
) -> tuple[list[PromptRecord], list[str]]:
    """Have a target judge output and reference continuations: the plain endpoint's, or the speculating server's own."""
    limits = pair.limits
    if not pair.settings.engine.plain_endpoint:
        return judge_by_sglang(HttpGenerator(client), prompts, records, continuations, limits.cut, progress), []
    with _plain_client(pair) as plain:
        judged = judge_by_sglang(HttpGenerator(plain), prompts, records, continuations, limits.cut, progress)
        return judged, [
            f"the target was asked at {plain.endpoint}, without speculation",
            *_withheld(plain),
            *_retried(plain),
        ]


def _unknown(measured: Sequence[Measured]) -> list[str]:
    """Return notes about prompts whose rounds are not known in order, or not at all."""
    counted = sum(one.known is Known.COUNTED for one in measured)
    nothing = [one.record.id for one in measured if one.known is Known.NOTHING]
    notes = []
    if counted:
        notes.append(
            f"the rounds of {counted} of {len(measured)} prompts are known by their counts, not in order: the server's "
            "chunks held several rounds"
        )
    if nothing:
        notes.append(
            f"{len(nothing)} of {len(measured)} prompts count nothing, first {nothing[0]!r}: the server's chunks held "
            "several rounds, and it decodes the prompt differently when it is asked again"
        )
    return notes


def _withheld(client: Client) -> list[str]:
    if not client.withheld:
        return []
    return [f"the API key was not sent to {client.endpoint}, an address that only the pair file names"]


def _retried(client: Client) -> list[str]:
    if not client.retried:
        return []
    return [f"{len(client.retried)} requests were sent again, as no answer had begun; first {client.retried[0]}"]
