"""Verifying a golden without running a model: is it consistent, and do the pair's files still match it?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness.counts.rounds import Limits, walk
from harness.counts.run import histogram_of
from harness.errors import InputError
from harness.golden.comparable import recorded_prompts, require_comparable
from harness.golden.provenance import changed_files
from harness.golden.store import Golden, load_golden
from harness.pair.pair import Pair

__all__ = ["golden_problems"]


def golden_problems(file: Path, pair: Pair) -> list[str]:
    """Return everything that is wrong with a golden, as sentences; empty if golden and pair are as they were recorded.

    The counts are computed again from the recorded continuations and proposals, so an edited count is found even if
    the totals were edited to match.
    """
    try:
        golden = load_golden(file)
    except InputError as error:
        return [str(error)]
    problems = list(_count_problems(golden, pair))
    try:
        require_comparable(golden, pair, recorded_prompts(golden, pair), subset=False)
    except InputError as error:
        problems.append(str(error))
    return problems + changed_files(pair, golden)


def _count_problems(golden: Golden, pair: Pair) -> Iterator[str]:
    decode = golden.document.decode
    limits = Limits(decode["max_new_tokens"], decode["num_steps"], pair.target.eos_ids)
    for prompt in golden.document.prompts:
        tensors = golden.tensors[prompt.id]
        if tensors.proposals is None:
            continue
        counter = walk(golden.continuation(prompt.id), tensors.proposals.astype("int64"), limits)
        expected = histogram_of(counter.rounds, limits.num_steps)
        if tuple(prompt.histogram) != expected:
            yield (
                f"prompt {prompt.id!r}: the histogram is {prompt.histogram}, but the recorded continuation and "
                f"proposals give {list(expected)}"
            )
        eos = None if counter.eos_round is None else (counter.eos_round.proposed, counter.eos_round.accepted)
        if prompt.eos_round != eos:
            yield f"prompt {prompt.id!r}: eos_round is {prompt.eos_round}, but the recorded continuation gives {eos}"
