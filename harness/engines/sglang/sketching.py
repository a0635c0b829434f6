"""Sketches of what SGLang gives its draft, taken while SGLang's own target is asked about known texts.

The target's forward over a prompt and its continuation is followed by the draft's, whose `fc` receives the states of
all of their positions. The hooks write them down, and what is kept are the sketches at the sampled positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray

from harness.counts.rounds import Limits
from harness.counts.run import PromptRecord
from harness.counts.stages import POSITIONS, WIDTH, sample_at, stage_names
from harness.engines.base import Continuations
from harness.engines.sglang.launch import RunningEngine
from harness.engines.sglang.rounds import read_state_files
from harness.models.sketch import sketch_parts
from harness.pair.pair import Pair
from harness.pair.prompts import Prompt

__all__ = ["SketchingEngine", "slot_stages"]


class SketchingEngine:
    """A started SGLang that is asked about known texts; see `harness.engines.shared.sglang_target.SglangGenerator`.

    Args:
        engine: Answers the questions, and writes down what its draft is given.
        pair: Its boundaries are the slots that are sketched.
        prompts: What is in front of the texts.
        texts: The texts by prompt id, cut by `limits`.
        limits: What ends a text.
    """

    def __init__(
        self, engine: RunningEngine, pair: Pair, prompts: Sequence[Prompt], texts: Continuations, limits: Limits
    ) -> None:
        self._engine = engine
        self._slots = len(pair.boundaries)
        self._width = self._slots * pair.target.hidden_size
        self._stages = len(stage_names(pair.target.num_layers, self._slots, limits.num_steps))
        self._first = pair.target.num_layers + 1
        self._ids = {prompt.id: (*prompt.ids, *texts[prompt.id]) for prompt in prompts}
        self._wanted = {prompt.id: sample_at(len(prompt.ids), limits.starts(texts[prompt.id])) for prompt in prompts}
        self._found: dict[str, dict[int, NDArray[np.float32]]] = {name: {} for name in self._ids}
        self._read = len(read_state_files(engine.watch))

    def generate(self, **arguments: Any) -> list[dict[str, Any]]:
        """Ask the engine, and sketch what its draft is given meanwhile."""
        with self._engine.writing_states():
            results = self._engine.generate(**arguments)
        files = read_state_files(self._engine.watch)
        for _mode, file in files[self._read :]:
            self._take(safetensors.torch.load_file(file))
            # Those of a long text are large, and there are many texts.
            file.unlink()
        self._read = len(files)
        return results

    def flush_cache(self) -> None:
        """Have the engine forget every prefix that it has cached."""
        self._engine.flush_cache()

    def added_to(self, records: Sequence[PromptRecord]) -> list[PromptRecord]:
        """Return records with their sketches: float32 [POSITIONS, stages, WIDTH], NaN at all stages but the slots.

        A record is left as it is if its states were not seen at every sampled position.
        """
        return [self._added(record) for record in records]

    def _added(self, record: PromptRecord) -> PromptRecord:
        positions, found = self._wanted[record.id], self._found[record.id]
        if not positions or any(position not in found for position in positions):
            return record
        sketches = np.full((POSITIONS, self._stages, WIDTH), np.nan, np.float32)
        for row, position in enumerate(positions):
            sketches[row, self._first : self._first + self._slots] = found[position]
        return replace(record, sketches=sketches)

    def _take(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take the sketches of one call of the draft, whose rows belong to one text after the other."""
        states, positions = tensors["states"], tensors["positions"].tolist()
        if states.ndim != 2 or states.shape[1] != self._width or states.shape[0] < len(positions):
            # A later step of a chain is given the draft's own state.
            return
        ids = tensors["input_ids"].tolist()
        for begin, end in _runs(positions):
            start = positions[begin]
            for name, wanted in self._wanted.items():
                rows = [position - start + begin for position in wanted if start <= position < start + end - begin]
                # The draft is given each token's successor together with its state. That of the last is SGLang's own.
                known = self._ids[name][start + 1 : start + end - begin + 1]
                if not rows or list(known) != ids[begin : begin + len(known)] or not known:
                    continue
                chosen = sketch_parts(states[None], torch.tensor([rows]), self._slots)[0]
                for row, sketched in zip(rows, chosen.numpy().astype(np.float32), strict=True):
                    self._found[name][positions[row]] = sketched


def _runs(positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each run of positions that follow each other."""
    begin = 0
    for index in range(1, len(positions) + 1):
        if index == len(positions) or positions[index] != positions[index - 1] + 1:
            yield begin, index
            begin = index


def slot_stages(pair: Pair) -> tuple[str, ...]:
    """Return the stages that are sketched."""
    return tuple(f"slot {slot}" for slot in range(len(pair.boundaries)))
