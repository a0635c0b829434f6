"""Built-in pairs on the real engine: with other ids, shorter texts, and the prompts that cost least."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.commands.prepare import prepare
from harness.counts.run import PromptRecord
from harness.engines.base import Continuations, Progress
from harness.engines.registry import find_engine
from harness.engines.sglang.arguments import server_arguments
from harness.engines.sglang.engine import cache_tokens, running_engine
from harness.engines.sglang.launch import RunningEngine
from harness.engines.sglang.rounds import read_capture
from harness.engines.shared.process import Patience
from harness.engines.shared.sglang_target import WAVE
from harness.pair.pair import Pair
from harness.pair.prompts import Prompt
from suites.support.builtin_pairs import copy_pair

# Far longer than a start or a round takes on a busy machine.
PATIENCE = Patience(start=240.0, silence=120.0)


def shorter(name: str | Path, tokens: int) -> Pair:
    """Return a pair with another token limit: each token costs a good part of a second."""
    pair = prepare(name, engine="sglang")
    decode = pair.settings.decode.model_copy(update={"max_new_tokens": tokens})
    return replace(pair, settings=pair.settings.model_copy(update={"decode": decode}))


def rewired(folder: Path, ids: list[int], tokens: int) -> Pair:
    """Return the tiny pair with other layer ids in its draft's config."""
    return shorter(copy_pair(folder, ids=ids), tokens)


@contextlib.contextmanager
def serving(pair: Pair, arguments: dict[str, Any] | None = None, **changes: Any) -> Iterator[RunningEngine]:
    """Start an engine for a pair, with changed arguments where some are given."""
    if arguments is None:
        arguments = server_arguments(pair, running=WAVE, tokens=cache_tokens([], pair.limits))
    with running_engine(pair, arguments | changes, PATIENCE) as engine:
        yield engine


@contextlib.contextmanager
def lending(engine: RunningEngine) -> Iterator[None]:
    """Have whoever starts an engine in the block be given this one: a start costs more than most of what is asked."""
    layers = read_capture(engine.watch).layers

    @contextlib.contextmanager
    def lent(pair: Pair, _arguments: Mapping[str, Any], _patience: Patience) -> Iterator[RunningEngine]:
        # Other ids in a draft's config would have made another engine.
        assert layers == pair.boundaries
        yield engine

    with pytest.MonkeyPatch.context() as patch:
        for module in ("engine", "probe"):
            patch.setattr(f"harness.engines.sglang.{module}.running_engine", lent)
        yield


def reference(pair: Pair, prompts: list[Prompt]) -> list[PromptRecord]:
    """Decode prompts with the reference engine, one after the other."""
    return list(find_engine("reference:sequential").run(pair, prompts, None, Progress()).records)


def greedy(pair: Pair, prompts: list[Prompt]) -> Continuations:
    """Return what transformers decodes without speculation."""
    run = find_engine("reference").run(pair, prompts, None, Progress())
    return {record.id: record.continuation for record in run.records}


def processes(session: int) -> list[int]:
    """Return the living processes of a session; a zombie is none."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        # A process may end while it is looked at.
        with contextlib.suppress(OSError):
            state, _parent, _group, owner = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(owner) == session and state != "Z":
                found.append(int(entry.name))
    return found
