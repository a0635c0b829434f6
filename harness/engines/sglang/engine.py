"""The engine adapter: runs a pair on the real SGLang and returns what the reference engine returns.

The end of a text is ignored while SGLang decodes and applied afterwards by the reference's own rule, so that both count
the same rounds. Whether the target agrees with what was put out, and with a golden text, SGLang's own target says: one
forward over prompt and text, without speculation.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from harness.counts.rounds import Limits, RoundCounter
from harness.counts.run import PromptRecord, Run, TargetCheck, histogram_of
from harness.engines.base import Continuations, Progress
from harness.engines.reference.engine import as_run
from harness.engines.reference.loaded import limits_of
from harness.engines.reference.sequential import Decoded, to_record
from harness.engines.sglang.arguments import server_arguments
from harness.engines.sglang.installed import engine_environment, require_installed
from harness.engines.sglang.launch import Patience, RunningEngine, launched
from harness.engines.sglang.rounds import Round, read_capture, read_rounds
from harness.engines.shared.sglang_counters import read_counters
from harness.errors import EngineError
from harness.pair.pair import Pair
from harness.pair.prompts import Prompt

__all__ = ["GREEDY", "WAVE", "Asked", "SglangEngine", "cache_tokens", "decode", "judge", "running_engine"]

_Item = TypeVar("_Item")

# Prompts that run at once.
WAVE = 16
_LEAST_CACHE = 4096
GREEDY: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True}


class Asked(Protocol):
    """An SGLang that answers: in a process tree of ours, or over HTTP."""

    def generate(self, **arguments: Any) -> list[dict[str, Any]]:
        """Return `output_ids` and `meta_info` of each prompt; the arguments are those of `Engine.generate`."""
        ...

    def flush_cache(self) -> None:
        """Forget the prefixes computed so far, where the engine is ours alone."""
        ...


class SglangEngine:
    """The real SGLang.

    Args:
        patience: How long it may give no sign of life.
    """

    def __init__(self, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()

    def run(self, pair: Pair, prompts: Sequence[Prompt], texts: Continuations | None, progress: Progress) -> Run:
        """Run the pair; see `harness.engines.base.Engine`.

        Raises:
            InputError: SGLang or the pair cannot be run as stated.
            EngineError: SGLang fails, or counts what contradicts its own rounds.
        """
        begun = time.perf_counter()
        version = require_installed(pair)
        limits = limits_of(pair)
        arguments = server_arguments(pair, running=WAVE, tokens=cache_tokens(prompts, limits))
        progress.begin(f"starting SGLang {version}", 1)
        with running_engine(pair, arguments, self._patience) as engine:
            read_capture(engine.watch)
            progress.advance(1)
            progress.begin(f"speculative decoding by SGLang {version}, log in {engine.log}", len(prompts))
            records = []
            for wave in _waves(prompts):
                records += decode(engine, wave, limits)
                progress.advance(len(wave))
            if texts is not None:
                records = judge(engine, prompts, records, texts, limits, progress)
        run = as_run(pair, records, "sglang", time.perf_counter() - begun)
        return replace(run, versions={**run.versions, "sglang": version})


def cache_tokens(prompts: Sequence[Prompt], limits: Limits) -> int:
    """Return the tokens that the requests of a wave hold in the cache at most."""
    longest = max((len(prompt.ids) for prompt in prompts), default=0)
    return max(_LEAST_CACHE, WAVE * (longest + 2 * limits.text_length))


@contextlib.contextmanager
def running_engine(pair: Pair, arguments: Mapping[str, Any], patience: Patience) -> Iterator[RunningEngine]:
    """Start an engine for a pair; its log stays where an error says it is, everything else is removed.

    Args:
        pair: The pair, for its device.
        arguments: Of SGLang's `ServerArgs`.
        patience: How long it may give no sign of life.

    Raises:
        InputError: SGLang does not take the arguments.
        EngineError: It fails.
    """
    folder = Path(tempfile.mkdtemp(prefix="harness-sglang-"))
    watch = folder / "watch"
    watch.mkdir()
    environment = engine_environment(pair.settings.engine.device, str(watch))
    try:
        with launched(arguments, environment=environment, folder=folder, watch=watch, patience=patience) as engine:
            yield engine
    finally:
        shutil.rmtree(watch, ignore_errors=True)


def decode(engine: RunningEngine, prompts: Sequence[Prompt], limits: Limits) -> list[PromptRecord]:
    """Decode prompts in one batch.

    Args:
        engine: A started engine that speculates.
        prompts: The prompts.
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
                f"prompt {prompt.id!r}: SGLang accepts {one.accepted} of {list(one.proposed)}, where its target "
                f"chooses {list(one.predicted)}"
            )
    if decoded.going():
        raise EngineError(
            f"prompt {prompt.id!r}: SGLang ended after {len(output)} of {limits.max_new_tokens} tokens, by "
            f"{result['meta_info'].get('finish_reason')}"
        )
    common = min(len(output), len(decoded.text))
    if output[:common] != decoded.text[:common]:
        raise EngineError(f"prompt {prompt.id!r}: SGLang puts out {output}, its rounds make {decoded.text}")
    return to_record(prompt, decoded)


def judge(
    engine: Asked,
    prompts: Sequence[Prompt],
    records: Sequence[PromptRecord],
    texts: Continuations,
    limits: Limits,
    progress: Progress,
) -> list[PromptRecord]:
    """Add to records whether SGLang's own target, without speculation, agrees with the output and the golden texts.

    Where it would not have chosen what was put out it is asked once more: one that does not agree with itself says
    nothing of speculation.
    """
    progress.begin("the target along the texts", len(prompts))
    judged = []
    for wave in _waves(list(zip(prompts, records, strict=True))):
        batch = [prompt for prompt, _ in wave]
        outputs = [record.continuation for _, record in wave]
        golden = [limits.cut(texts[prompt.id]) for prompt in batch]
        theirs = _agreement(engine, batch, golden)
        # Nearly always the output is the beginning of the golden text, and has been judged with it.
        own = [
            _beginning(check, len(output)) if text[: len(output)] == output else None
            for output, text, check in zip(outputs, golden, theirs, strict=True)
        ]
        other = [index for index, check in enumerate(own) if check is None]
        again = _agreement(engine, [batch[index] for index in other], [outputs[index] for index in other])
        for index, found in zip(other, again, strict=True):
            own[index] = found
        for index, ((_, record), check) in enumerate(zip(wave, own, strict=True)):
            assert check is not None
            deterministic = None
            if not check.agrees.all():
                engine.flush_cache()
                (second,) = _agreement(engine, [batch[index]], [outputs[index]])
                deterministic = bool((second.agrees == check.agrees).all())
            judged.append(replace(record, own=check, target=theirs[index], deterministic=deterministic))
        progress.advance(len(wave))
    return judged


def _beginning(check: TargetCheck, length: int) -> TargetCheck:
    return TargetCheck(check.agrees[:length], check.gaps[:length])


def _agreement(engine: Asked, prompts: Sequence[Prompt], texts: Sequence[tuple[int, ...]]) -> list[TargetCheck]:
    """Return the agreement of SGLang's target with each text, by one forward and no decoding."""
    if not prompts:
        return []
    results = engine.generate(
        input_ids=[[*prompt.ids, *text] for prompt, text in zip(prompts, texts, strict=True)],
        sampling_params=GREEDY | {"max_new_tokens": 0},
        return_logprob=True,
        logprob_start_len=[len(prompt.ids) - 1 for prompt in prompts],
        top_logprobs_num=1,
    )
    checks = []
    for text, result in zip(texts, results, strict=True):
        # The first entry is of the prompt's last token, which nothing predicts here.
        chosen = result["meta_info"]["input_top_logprobs"][1:]
        given = result["meta_info"]["input_token_logprobs"][1:]
        if len(chosen) != len(text) or len(given) != len(text):
            raise EngineError(f"SGLang judged {len(chosen)} tokens of a text of {len(text)}")
        agrees = np.array([best[0][1] == token for best, token in zip(chosen, text, strict=True)], dtype=np.bool_)
        gaps = np.array([best[0][0] - one[0] for best, one in zip(chosen, given, strict=True)], dtype=np.float32)
        checks.append(TargetCheck(agrees, np.where(agrees, np.float32(0), gaps)))
    return checks


def _waves(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), WAVE):
        yield items[start : start + WAVE]
