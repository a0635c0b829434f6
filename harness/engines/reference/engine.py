"""The reference engine: decodes or replays a pair, and gives what a golden of it is made of."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from harness.counts.run import PromptRecord, Run
from harness.engines.base import Continuations, Probe, Progress, RecordGuide, Recording, view_of
from harness.engines.reference.agreement import ReferenceTarget
from harness.engines.reference.batched import batched
from harness.engines.reference.draft_cache import DraftCache
from harness.engines.reference.greedy import greedy_continuations
from harness.engines.reference.loaded import LoadedPair, load
from harness.engines.reference.noise import jittered, measure_noise
from harness.engines.reference.replay import DraftInput, replay, replay_all
from harness.engines.reference.round_views import shown_stages
from harness.engines.reference.sequential import propose, sequential
from harness.engines.reference.threads import suitable_threads
from harness.engines.shared.decoded import as_run, torch_versions
from harness.engines.shared.judging import judge_output
from harness.pair.pair import Pair
from harness.pair.prompts import Prompt

__all__ = ["ReferenceEngine", "shifted"]


class ReferenceEngine:
    """The reference engine in one of its modes.

    Args:
        mode: `replay`, `sequential` (one prompt at a time) or `batched` (sequential rounds, prompts together).
    """

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def run(
        self, pair: Pair, prompts: Sequence[Prompt], continuations: Continuations | None, progress: Progress
    ) -> Run:
        """Run the pair; see `harness.engines.base.Engine`."""
        start = time.perf_counter()
        with suitable_threads(pair):
            loaded = load(pair)
            notes = [*loaded.target.notes]
            records = self._records(loaded, prompts, continuations, progress, notes.append)
        run = replace(as_run(pair, records, f"reference:{self.mode}", time.perf_counter() - start), notes=tuple(notes))
        if self.mode == "replay":
            return run
        return replace(
            run, stages=shown_stages(pair.target.num_layers, len(pair.boundaries), pair.settings.decode.num_steps)
        )

    def sample(
        self, pair: Pair, prompts: Sequence[Prompt], continuations: Continuations, at: Mapping[str, tuple[int, ...]]
    ) -> list[PromptRecord]:
        """Run some prompts once more; see `harness.engines.base.Sampler`."""
        with suitable_threads(pair):
            known = [pair.limits.cut(continuations[prompt.id]) for prompt in prompts]
            return replay(load(pair), prompts, known, at=[at[prompt.id] for prompt in prompts])

    def text_versions(self) -> dict[str, str]:
        """Return the versions that determine what the target decodes; see `harness.engines.base.Recorder`."""
        return torch_versions()

    def record(self, pair: Pair, prompts: Sequence[Prompt], guide: RecordGuide, progress: Progress) -> Recording:
        """Measure what a golden is made of; see `harness.engines.base.Recorder`."""
        start = time.perf_counter()
        with suitable_threads(pair):
            loaded = load(pair)
            notes = [*loaded.target.notes]
            prompts, continuations = _texts(loaded, prompts, guide, progress, notes.append)
            moved_boundaries = shifted(pair)
            # One run of the target for all arms that only read its states differently.
            inputs = [DraftInput(pair.boundaries), *jittered(pair.boundaries), DraftInput(moved_boundaries)]
            progress.begin(f"replay on {len(inputs)} inputs", len(prompts))
            records, *jitters, moved = replay_all(loaded, inputs, prompts, continuations, advance=progress.advance)
            guide.measured(records)
            noise = measure_noise(loaded, prompts, continuations, records, jitters, progress)
        seconds = time.perf_counter() - start
        name = f"reference:{self.mode}"
        run = replace(as_run(pair, records, name, seconds), notes=tuple(notes))
        return Recording(run, noise, as_run(pair, moved, name, seconds), moved_boundaries)

    @torch.inference_mode()
    def probe(self, pair: Pair, prompt: Prompt) -> Probe:
        """Show one prompt's way through the pipeline; see `harness.engines.base.Prober`."""
        with suitable_threads(pair):
            loaded = load(pair)
            target, draft = loaded.target, loaded.draft
            ids = torch.tensor([prompt.ids], device=target.device)
            with target.capture(pair.boundaries) as capture:
                bonus = target.forward(ids, keep=1)[:, -1].argmax(-1, keepdim=True)
                states = capture.concatenated()
                slots = tuple(view_of(capture.state(boundary)) for boundary in pair.boundaries)
            steps = loaded.limits.num_steps
            following = torch.cat((ids[:, 1:], bonus), dim=1)
            cache = DraftCache(draft, 1, ids.shape[1] + steps + 1)
            proposed = propose(draft, cache, following, states, 0, steps)
            fused = draft.fuse(states.to(draft.dtype))
        return Probe(slots, view_of(states), view_of(fused), tuple(proposed.chain[0].tolist()))

    def _records(
        self,
        loaded: LoadedPair,
        prompts: Sequence[Prompt],
        references: Continuations | None,
        progress: Progress,
        told: Callable[[str], None],
    ) -> list[PromptRecord]:
        known = None if references is None else [loaded.limits.cut(references[prompt.id]) for prompt in prompts]
        if self.mode == "replay":
            if known is None:
                known = _decode_greedily(loaded, prompts, progress, told)
            progress.begin("replay", len(prompts))
            return replay(loaded, prompts, known, advance=progress.advance)
        decode = sequential if self.mode == "sequential" else batched
        progress.begin("speculative decoding", len(prompts))
        records = decode(loaded, prompts, advance=progress.advance)
        return records if known is None else judge_output(ReferenceTarget(loaded.target), prompts, records, known)


def _texts(
    loaded: LoadedPair,
    prompts: Sequence[Prompt],
    guide: RecordGuide,
    progress: Progress,
    told: Callable[[str], None],
) -> tuple[list[Prompt], list[tuple[int, ...]]]:
    """Return the prompts that are recorded and their continuations, decoded now or by an earlier attempt."""
    known = guide.known(prompts)
    kept = {prompt.id: guide.decoded(prompt, known[prompt.id]) for prompt in prompts if prompt.id in known}
    missing = [prompt for prompt in prompts if prompt.id not in known]

    def found(row: int, continuation: tuple[int, ...]) -> None:
        prompt = missing[row]
        known[prompt.id] = continuation
        kept[prompt.id] = guide.decoded(prompt, continuation)

    progress.begin("greedy decoding", len(prompts))
    progress.advance(len(kept))
    ids = [prompt.ids for prompt in missing]
    greedy_continuations(loaded.target, ids, loaded.limits, progress.advance, found, told)
    chosen = [prompt for prompt in prompts if kept[prompt.id]]
    return chosen, [known[prompt.id] for prompt in chosen]


def _decode_greedily(
    loaded: LoadedPair, prompts: Sequence[Prompt], progress: Progress, told: Callable[[str], None]
) -> list[tuple[int, ...]]:
    """Decode the prompts without speculation: the continuations that replay measures on."""
    progress.begin("greedy decoding", len(prompts))
    ids = [prompt.ids for prompt in prompts]
    return greedy_continuations(loaded.target, ids, loaded.limits, progress.advance, told=told)


def shifted(pair: Pair) -> tuple[int, ...]:
    """Return the pair's boundaries moved by one: up, or down if the highest is the target's last."""
    step = 1 if max(pair.boundaries) < pair.target.num_layers else -1
    moved = tuple(boundary + step for boundary in pair.boundaries)
    # If the embedding and the last are both captured, neither direction is open to all: those at the end stay.
    return tuple(min(max(boundary, 0), pair.target.num_layers) for boundary in moved)
