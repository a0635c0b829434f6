"""SGLang's own target along known continuations, wherever SGLang runs: in a process tree of ours or behind HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from harness.counts.run import PromptRecord, TargetCheck
from harness.engines.base import Continuations, Progress
from harness.engines.shared.judging import judge_output
from harness.errors import EngineError
from harness.pair.prompts import Prompt

__all__ = ["GREEDY", "WAVE", "SglangGenerator", "SglangTarget", "judge_by_sglang", "waves"]

_Item = TypeVar("_Item")

WAVE = 16
"""Prompts that run at once."""
GREEDY: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True}


class SglangGenerator(Protocol):
    """An SGLang that answers `generate`."""

    def generate(self, **arguments: Any) -> list[dict[str, Any]]:
        """Return `output_ids` and `meta_info` of each prompt; the arguments are those of `Engine.generate`."""
        ...

    def flush_cache(self) -> None:
        """Forget the prefixes computed so far, if the engine is ours alone."""
        ...


class SglangTarget:
    """SGLang as a judge; see `harness.engines.shared.judging.TargetJudge`.

    Args:
        generator: The SGLang that is asked.
    """

    def __init__(self, generator: SglangGenerator) -> None:
        self._generator = generator

    def agreement(self, prompts: Sequence[Prompt], continuations: Sequence[tuple[int, ...]]) -> list[TargetCheck]:
        """Return the agreement of SGLang's target with each continuation.

        Raises:
            EngineError: SGLang fails, or judges another number of tokens than it was given.
        """
        if not prompts:
            return []
        results = self._generator.generate(
            input_ids=[[*prompt.ids, *known] for prompt, known in zip(prompts, continuations, strict=True)],
            sampling_params=GREEDY | {"max_new_tokens": 0},
            return_logprob=True,
            logprob_start_len=[len(prompt.ids) - 1 for prompt in prompts],
            top_logprobs_num=1,
        )
        return [_check(known, result["meta_info"]) for known, result in zip(continuations, results, strict=True)]

    def forget(self) -> None:
        """Have SGLang forget the prefixes that it has computed."""
        self._generator.flush_cache()


def _check(continuation: Sequence[int], meta: dict[str, Any]) -> TargetCheck:
    # The first entry belongs to the prompt's last token, which nothing predicts here.
    chosen, given = meta["input_top_logprobs"][1:], meta["input_token_logprobs"][1:]
    if len(chosen) != len(continuation) or len(given) != len(continuation):
        raise EngineError(f"SGLang judged {len(chosen)} tokens of a continuation of {len(continuation)}")
    agrees = np.array([best[0][1] == token for best, token in zip(chosen, continuation, strict=True)], dtype=np.bool_)
    gaps = np.array([best[0][0] - one[0] for best, one in zip(chosen, given, strict=True)], dtype=np.float32)
    return TargetCheck(agrees, np.where(agrees, np.float32(0), gaps))


def judge_by_sglang(
    generator: SglangGenerator,
    prompts: Sequence[Prompt],
    records: Sequence[PromptRecord],
    references: Continuations,
    cut: Callable[[Sequence[int]], tuple[int, ...]],
    progress: Progress,
) -> list[PromptRecord]:
    """Judge records wave by wave; see `judge_output`.

    Args:
        generator: The SGLang that is asked.
        prompts: What was continued, in the records' order.
        records: What was decoded, in the prompts' order.
        references: Reference continuations by prompt id.
        cut: Cuts a reference continuation to what rounds can touch.
        progress: Receives how far it is.
    """
    progress.begin("the target along the continuations", len(prompts))
    target = SglangTarget(generator)
    judged = []
    for wave in waves(list(zip(prompts, records, strict=True))):
        batch = [prompt for prompt, _ in wave]
        known = [cut(references[prompt.id]) for prompt in batch]
        judged += judge_output(target, batch, [record for _, record in wave], known, progress.advance)
    return judged


def waves(items: Sequence[_Item], size: int = WAVE) -> Iterator[Sequence[_Item]]:
    """Yield items in the groups that run at once."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
