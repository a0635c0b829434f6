"""The reference engine: loads a pair, decodes or replays it, and measures its own rounding noise."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence

import torch
import transformers

from harness.engines.base import Progress, Texts
from harness.engines.reference.batched import batched
from harness.engines.reference.greedy import greedy_texts
from harness.engines.reference.replay import replay
from harness.engines.reference.rounds import Limits
from harness.engines.reference.sequential import sequential
from harness.engines.reference.threads import suitable_threads
from harness.errors import InputError
from harness.models.draft import Eagle3Draft
from harness.models.draft_weights import load_draft
from harness.models.precision import DTYPES
from harness.models.target import Target, load_target
from harness.pair.pair import Pair
from harness.pair.prompts import Prompt
from harness.record import PromptRecord, Run

__all__ = ["LoadedPair", "ReferenceEngine", "limits_of", "load"]


def limits_of(pair: Pair) -> Limits:
    """Return what ends a pair's continuations."""
    decode = pair.settings.decode
    return Limits(decode.max_new_tokens, decode.num_steps, pair.target.eos_ids)


class LoadedPair:
    """A pair's models in memory.

    Args:
        pair: The pair.
        target: Its target.
        draft: Its draft.
    """

    def __init__(self, pair: Pair, target: Target, draft: Eagle3Draft) -> None:
        self.pair = pair
        self.target = target
        self.draft = draft
        self.limits = limits_of(pair)

    def texts(self, prompts: Sequence[Prompt], progress: Progress) -> list[tuple[int, ...]]:
        """Decode the prompts greedily, without speculation."""
        progress.begin("greedy decoding", len(prompts))
        return greedy_texts(self.target, [prompt.ids for prompt in prompts], self.limits, progress.advance)

    def replay(
        self, prompts: Sequence[Prompt], texts: Sequence[tuple[int, ...]], progress: Progress, what: str = "replay"
    ) -> list[PromptRecord]:
        """Replay known texts."""
        progress.begin(what, len(prompts))
        return replay(
            self.target, self.draft, self.pair.boundaries, prompts, texts, self.limits, advance=progress.advance
        )


def load(pair: Pair) -> LoadedPair:
    """Load a pair's models.

    Raises:
        InputError: A checkpoint cannot be used as it stands, or the device is not there.
    """
    engine = pair.settings.engine
    dtype = DTYPES[engine.dtype]
    try:
        # Read back: the meta device holds no values.
        torch.zeros(1, device=engine.device).item()
    except Exception as error:  # noqa: BLE001 - each backend fails in its own way where it is not there
        raise InputError(
            "the device is not available",
            file=pair.file,
            key="engine.device or --device",
            found=f"{engine.device or 'nothing'}: {error}",
            expected="cpu, or cuda where torch sees a GPU",
        ) from None
    target = load_target(pair.target, dtype=dtype, device=engine.device)
    draft = load_draft(
        pair.draft,
        num_boundaries=len(pair.boundaries),
        target_embedding=target.embedding,
        dtype=dtype,
        device=engine.device,
    )
    return LoadedPair(pair, target, draft)


class ReferenceEngine:
    """The reference engine in one of its modes.

    Args:
        mode: `replay`, `sequential` (one prompt at a time) or `batched` (sequential rounds, prompts together).
    """

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def run(self, pair: Pair, prompts: Sequence[Prompt], texts: Texts | None, progress: Progress) -> Run:
        """Run the pair; see `harness.engines.base.Engine`."""
        start = time.perf_counter()
        with suitable_threads(pair):
            records = self._records(pair, prompts, texts, progress)
        return as_run(pair, records, f"reference:{self.mode}", time.perf_counter() - start)

    def _records(
        self, pair: Pair, prompts: Sequence[Prompt], texts: Texts | None, progress: Progress
    ) -> list[PromptRecord]:
        loaded = load(pair)
        if self.mode == "replay":
            if texts is None:
                known = loaded.texts(prompts, progress)
            else:
                known = [loaded.limits.cut(texts[prompt.id]) for prompt in prompts]
            return loaded.replay(prompts, known, progress)
        decode = sequential if self.mode == "sequential" else batched
        progress.begin("speculative decoding", len(prompts))
        return decode(loaded.target, loaded.draft, pair.boundaries, prompts, loaded.limits, advance=progress.advance)


def as_run(pair: Pair, records: Sequence[PromptRecord], engine: str, seconds: float) -> Run:
    """Return records as a run of this machine."""
    return Run(
        engine=engine,
        device=pair.settings.engine.device,
        dtype=pair.settings.engine.dtype,
        num_steps=pair.settings.decode.num_steps,
        records=tuple(records),
        versions={
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        seconds=seconds,
    )
