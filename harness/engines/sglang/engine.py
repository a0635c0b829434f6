"""The engine adapter: runs a pair on the real SGLang and returns what the reference engine returns.

The end of a text is ignored while SGLang decodes and applied afterwards by the reference's own rule, so that both count
the same rounds. SGLang's own target says whether it agrees with the output and with a reference continuation: one
forward over prompt and continuation, without speculation.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.counts.rounds import Limits, RoundCounter
from harness.counts.run import PromptRecord, Run, histogram_of
from harness.engines.base import Continuations, Progress, RecordGuide, Recording
from harness.engines.sglang.arguments import MODELS, server_arguments
from harness.engines.sglang.data_only import data_only
from harness.engines.sglang.installed import engine_environment, require_installed
from harness.engines.sglang.launch import RunningEngine, launched
from harness.engines.sglang.rounds import Round, read_capture, read_rounds
from harness.engines.sglang.sketching import SketchingEngine, slot_stages
from harness.engines.shared.decoded import Decoded, as_run, to_record
from harness.engines.shared.process import Patience
from harness.engines.shared.repeats import in_order, repeat_noise, shuffled
from harness.engines.shared.sglang_counters import read_counters
from harness.engines.shared.sglang_target import GREEDY, WAVE, judge_by_sglang, waves
from harness.errors import EngineError
from harness.pair.pair import Pair
from harness.pair.prompts import Prompt

__all__ = ["SglangEngine", "cache_tokens", "decode", "running_engine"]

_LEAST_CACHE = 4096
# Prompts at once in the second run of a record: batches of another size round differently.
_OTHER_WAVE = WAVE // 2


class SglangEngine:
    """The real SGLang.

    Args:
        patience: How long it may give no sign of life.
    """

    def __init__(self, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()

    def run(
        self, pair: Pair, prompts: Sequence[Prompt], continuations: Continuations | None, progress: Progress
    ) -> Run:
        """Run the pair; see `harness.engines.base.Engine`.

        Raises:
            InputError: SGLang or the pair cannot be run as stated.
            EngineError: SGLang fails, or counts what contradicts its own rounds.
        """
        begun = time.perf_counter()
        version = require_installed(pair)
        limits = pair.limits
        arguments = server_arguments(pair, running=WAVE, tokens=cache_tokens(prompts, limits))
        progress.begin(f"starting SGLang {version}", 1)
        with running_engine(pair, arguments, self._patience) as engine:
            read_capture(engine.watch)
            progress.advance(1)
            progress.begin(f"speculative decoding by SGLang {version}, log in {engine.log}", len(prompts))
            records = []
            for wave in waves(prompts):
                records += decode(engine, wave, limits)
                progress.advance(len(wave))
            if continuations is not None:
                records = _judged(engine, pair, prompts, records, continuations, progress)
        return _as_run(pair, records, version, begun)

    def text_versions(self) -> None:
        """Say that texts alone cannot be resumed: rounds are counted as they are decoded."""

    def record(self, pair: Pair, prompts: Sequence[Prompt], guide: RecordGuide, progress: Progress) -> Recording:
        """Measure what a golden is made of, twice; see `harness.engines.base.Recorder`.

        Raises:
            InputError: SGLang or the pair cannot be run as stated, or the golden would be misleading.
            EngineError: SGLang fails, or counts what contradicts its own rounds.
        """
        begun = time.perf_counter()
        version = require_installed(pair)
        limits = pair.limits
        arguments = server_arguments(pair, running=WAVE, tokens=cache_tokens(prompts, limits))
        progress.begin(f"starting SGLang {version}", 1)
        with running_engine(pair, arguments, self._patience) as engine:
            read_capture(engine.watch)
            progress.advance(1)
            progress.begin(f"speculative decoding by SGLang {version}, log in {engine.log}", len(prompts))
            kept, records = [], []
            for wave in waves(prompts):
                for prompt, found in zip(wave, decode(engine, wave, limits), strict=True):
                    if guide.decoded(prompt, found.continuation):
                        kept.append(prompt)
                        records.append(found)
                progress.advance(len(wave))
            guide.measured(records)
            texts = {record.id: record.continuation for record in records}
            engine.flush_cache()
            records = _judged(engine, pair, kept, records, texts, progress)
            engine.flush_cache()
            progress.begin("the same again, in another order and other batches", len(kept))
            again = []
            for wave in waves(shuffled(kept, seed=1), _OTHER_WAVE):
                again += decode(engine, wave, limits)
                progress.advance(len(wave))
        second = in_order(again, records)
        how = f"in another order, {_OTHER_WAVE} prompts at once, with an empty prefix cache"
        noise = repeat_noise(records, second, limits, f"the same engine again, {how}")
        return Recording(
            _as_run(pair, records, version, begun),
            {} if noise is None else {pair.settings.engine.dtype: [noise]},
            again=(_as_run(pair, second, version, begun),),
            runs=(f"as listed, {WAVE} prompts at once", how),
        )


def _judged(
    engine: RunningEngine,
    pair: Pair,
    prompts: Sequence[Prompt],
    records: Sequence[PromptRecord],
    texts: Continuations,
    progress: Progress,
) -> list[PromptRecord]:
    """Have SGLang's own target judge the records, and sketch what its draft is given on the way."""
    limits = pair.limits
    known = {prompt.id: limits.cut(texts[prompt.id]) for prompt in prompts}
    asked = SketchingEngine(engine, pair, prompts, known, limits)
    return asked.added_to(judge_by_sglang(asked, prompts, records, known, limits.cut, progress))


def _as_run(pair: Pair, records: Sequence[PromptRecord], version: str, begun: float) -> Run:
    run = as_run(pair, records, "sglang", time.perf_counter() - begun)
    return replace(run, versions={**run.versions, "sglang": version}, stages=slot_stages(pair))


def cache_tokens(prompts: Sequence[Prompt], limits: Limits) -> int:
    """Return the tokens that the requests of a wave hold in the cache at most."""
    longest = max((len(prompt.ids) for prompt in prompts), default=0)
    return max(_LEAST_CACHE, WAVE * (longest + 2 * limits.text_length))


@contextlib.contextmanager
def running_engine(pair: Pair, arguments: Mapping[str, Any], patience: Patience) -> Iterator[RunningEngine]:
    """Start an engine for a pair; its log stays at the place that an error names; everything else is removed.

    Args:
        pair: The pair, for its device.
        arguments: Keywords for SGLang's `ServerArgs`.
        patience: How long it may give no sign of life.

    Raises:
        InputError: SGLang does not take the arguments.
        EngineError: It fails.
    """
    pair.fetch_weights()
    folder = Path(tempfile.mkdtemp(prefix="harness-sglang-"))
    watch = folder / "watch"
    watch.mkdir()
    environment = engine_environment(pair.settings.engine.device, str(watch))
    try:
        models = {key: Path(arguments[key]) for key in MODELS if key in arguments}
        given = {key: str(data_only(model, watch / key)) for key, model in models.items()}
        with launched(
            {**arguments, **given}, environment=environment, folder=folder, watch=watch, patience=patience
        ) as engine:
            yield engine
    finally:
        shutil.rmtree(watch, ignore_errors=True)


def decode(engine: RunningEngine, prompts: Sequence[Prompt], limits: Limits) -> list[PromptRecord]:
    """Decode prompts in one batch.

    Args:
        engine: A started engine that speculates.
        prompts: What to decode, sent together.
        limits: What ends a text.

    Returns:
        Records in the prompts' order, without the target's judgement.

    Raises:
        EngineError: SGLang fails, or its counters, its rounds and its output contradict each other.
    """
    # The ids of requests are used once: an engine serves many batches.
    known = len(read_rounds(engine.watch))
    requests = [f"harness-{known}-{index}" for index in range(len(prompts))]
    results = engine.generate(
        input_ids=[list(prompt.ids) for prompt in prompts],
        rid=requests,
        sampling_params=GREEDY | {"max_new_tokens": limits.max_new_tokens},
    )
    rounds = read_rounds(engine.watch)
    return [
        _record(prompt, result, rounds.get(request, []), limits)
        for prompt, request, result in zip(prompts, requests, results, strict=True)
    ]


def _record(prompt: Prompt, result: Mapping[str, Any], rounds: Sequence[Round], limits: Limits) -> PromptRecord:
    k = limits.num_steps
    counters = read_counters(result["meta_info"], num_steps=k, num_draft_tokens=k + 1)
    # With overlapping batches a request that is done may pass through one more round, which SGLang does not count.
    counted = rounds[: counters.rounds]
    watched = histogram_of([one.accepted for one in counted], k)
    if watched != counters.histogram:
        raise EngineError(
            f"prompt {prompt.id!r}: SGLang counts rounds by accepted tokens as {list(counters.histogram)}, its "
            f"verification was seen to make {list(watched)}"
        )
    output = [int(token) for token in result["output_ids"]]
    decoded = Decoded(output[:1], RoundCounter(limits))
    for one in counted:
        if not decoded.going():
            break
        if decoded.verify(one.proposed, one.predicted) != one.accepted:
            raise EngineError(
                f"prompt {prompt.id!r}: SGLang accepts {one.accepted} of {list(one.proposed)}, but its target "
                f"chooses {list(one.predicted)}"
            )
    if decoded.going():
        raise EngineError(
            f"prompt {prompt.id!r}: SGLang ended after {len(output)} of {limits.max_new_tokens} tokens, by "
            f"{result['meta_info'].get('finish_reason')}"
        )
    common = min(len(output), len(decoded.continuation))
    if output[:common] != decoded.continuation[:common]:
        raise EngineError(f"prompt {prompt.id!r}: SGLang outputs {output}, its rounds make {decoded.continuation}")
    return to_record(prompt, decoded)
