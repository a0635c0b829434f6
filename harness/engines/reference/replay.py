"""Replay: what sequential speculative decoding would have done, from one target forward over a known continuation.

Under greedy decoding the continuation is known beforehand: it is the reference continuation. One forward over prompt
and continuation gives every boundary and the target's argmax at every position; the draft then runs at all positions
at once, k steps, and walking the continuation over the chains found gives the rounds of the sequential decoder exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from harness.counts.rounds import Limits, walk
from harness.counts.run import PromptRecord, TargetCheck, histogram_of
from harness.counts.stages import POSITIONS, WIDTH, sample_positions
from harness.engines.reference.agreement import continuation_batches, forward_continuations
from harness.engines.reference.loaded import LoadedModels
from harness.engines.reference.round_views import token_logprobs
from harness.models.chains import ParallelChains
from harness.models.draft import Eagle3Draft
from harness.models.precision import norm_dtype
from harness.models.sketch import BoundarySketches, sketch, sketch_parts
from harness.models.target import Target
from harness.pair.prompts import Prompt

__all__ = ["DraftInput", "Seen", "StateFilter", "draft_on", "replay", "replay_all", "see"]

# A function over concatenated states [B, T, boundaries * H], applied between capture and draft.
StateFilter = Callable[[Tensor], Tensor]


@torch.inference_mode()
def replay(
    loaded: LoadedModels,
    prompts: Sequence[Prompt],
    continuations: Sequence[tuple[int, ...]],
    *,
    max_rows: int | None = None,
    state_filter: StateFilter | None = None,
    at: Sequence[tuple[int, ...]] | None = None,
    advance: Callable[[int], None] = lambda _count: None,
) -> list[PromptRecord]:
    """Measure a pair on known continuations.

    Args:
        loaded: The models, with the boundaries that the draft is given.
        prompts: Token ids to put in front of the continuations.
        continuations: Each prompt's known continuation, cut by the limits.
        max_rows: Most prompts in a batch.
        state_filter: Applied to the captured states, to measure what a disturbance of them does.
        at: POSITIONS starts of each prompt at which states are sketched; those of every golden if `None`.
        advance: Called with the number of prompts finished.

    Returns:
        Records in the prompts' order. "Accepted" means that the draft's token is the continuation's.
    """
    given = DraftInput(loaded.boundaries, state_filter)
    return replay_all(loaded, [given], prompts, continuations, max_rows=max_rows, at=at, advance=advance)[0]


@dataclass(frozen=True)
class DraftInput:
    """What a draft is given of the target's states.

    Attributes:
        boundaries: In the order of concatenation.
        state_filter: As for `replay`.
    """

    boundaries: tuple[int, ...]
    state_filter: StateFilter | None = None


@torch.inference_mode()
def replay_all(
    loaded: LoadedModels,
    inputs: Sequence[DraftInput],
    prompts: Sequence[Prompt],
    continuations: Sequence[tuple[int, ...]],
    *,
    max_rows: int | None = None,
    at: Sequence[tuple[int, ...]] | None = None,
    advance: Callable[[int], None] = lambda _count: None,
) -> list[list[PromptRecord]]:
    """Measure a draft on several inputs with one run of the target; returns what `replay` returns, for each input."""
    limits = loaded.limits
    # One capture of all boundaries that any input reads: the target's forward costs far more than the draft's.
    every = [boundary for given in inputs for boundary in given.boundaries]
    records: list[dict[int, PromptRecord]] = [{} for _ in inputs]
    for seen in see(loaded.target, every, prompts, continuations, limits, max_rows=max_rows, at=at):
        for given, found in zip(inputs, records, strict=True):
            made = draft_on(loaded.draft, seen, given.boundaries, limits, given.state_filter)
            found.update(zip(seen.rows, made, strict=True))
        advance(len(seen.rows))
    return [[found[row] for row in range(len(prompts))] for found in records]


@dataclass(frozen=True)
class Seen:
    """What the target computed on a batch of prompts and continuations: all that a draft of it, however wired, reads.

    Attributes:
        rows: Which of the prompts.
        prompts: The prompts of this batch, one for each row.
        continuations: Their continuations.
        checks: The target's agreement with them.
        ids: int64 [B, T+1]: prompts and continuations, padded.
        states: The aux hidden states by boundary, [B, T, H].
        starts: POSITIONS starts of each row, at which states are sketched.
        samples: int64 [B, POSITIONS]: these positions, of prompt and continuation together.
        sketches: Every boundary at those positions, float32 [B, POSITIONS, num_layers + 1, WIDTH].
    """

    rows: list[int]
    prompts: list[Prompt]
    continuations: list[tuple[int, ...]]
    checks: list[TargetCheck]
    ids: Tensor
    states: Mapping[int, Tensor]
    starts: list[tuple[int, ...]]
    samples: Tensor
    sketches: Tensor


@torch.inference_mode()
def see(
    target: Target,
    boundaries: Iterable[int],
    prompts: Sequence[Prompt],
    continuations: Sequence[tuple[int, ...]],
    limits: Limits,
    *,
    max_rows: int | None = None,
    at: Sequence[tuple[int, ...]] | None = None,
) -> Iterator[Seen]:
    """Run the target over prompts and continuations, batch by batch; `draft_on` then tries a wiring without it.

    Args:
        target: The loaded target; its forward runs once for each batch.
        boundaries: Those that any wiring to be tried reads.
        prompts: Token ids to put in front of the continuations.
        continuations: Each prompt's continuation, cut by `limits`.
        limits: What ends a continuation.
        max_rows: Most prompts in a batch.
        at: POSITIONS starts of each prompt at which states are sketched; those of every golden if `None`.
    """
    # Repeats are captured once; order does not matter here, since each input concatenates in its own.
    wanted = tuple(dict.fromkeys(boundaries))
    for rows in continuation_batches(target, prompts, continuations, max_rows):
        batch = [prompts[row] for row in rows]
        known = [continuations[row] for row in rows]
        starts = [
            sample_positions(max(1, limits.starts(continuations[row]))) if at is None else at[row] for row in rows
        ]
        samples = _samples(batch, starts).to(target.device)
        with (
            target.capture(wanted) as capture,
            BoundarySketches(target.model, target.spec.num_layers, samples) as sketches,
        ):
            checks, ids = forward_continuations(target, batch, known)
            states = {boundary: capture.state(boundary) for boundary in wanted}
        yield Seen(rows, batch, known, checks, ids, states, starts, samples, sketches.stacked())


@torch.inference_mode()
def draft_on(
    draft: Eagle3Draft,
    seen: Seen,
    boundaries: tuple[int, ...],
    limits: Limits,
    state_filter: StateFilter | None = None,
) -> list[PromptRecord]:
    """Measure a draft on what the target computed.

    Args:
        draft: The loaded draft that reads the states.
        seen: What the target computed.
        boundaries: What the draft is given, in the order of concatenation; each must be among `seen.states`.
        limits: What ends a continuation, and the chain length.
        state_filter: As for `replay`.

    Returns:
        Records in the order of `seen.rows`.
    """
    states = torch.cat([seen.states[boundary] for boundary in boundaries], dim=-1)
    if state_filter is not None:
        states = state_filter(states)
    tables = _run_draft(draft, draft.from_target(), states, seen, limits)
    sketches = torch.cat(
        (
            seen.sketches,
            sketch_parts(states, seen.samples, len(boundaries)),
            _fused(draft, states, seen.samples)[:, :, None],
            tables.sketches,
        ),
        dim=2,
    )
    records = []
    for prompt, continuation, check, table, sketch_row in zip(
        seen.prompts,
        seen.continuations,
        seen.checks,
        tables.rows,
        sketches.cpu().numpy().astype(np.float32),
        strict=True,
    ):
        counter = walk(continuation, table[0], limits)
        records.append(
            PromptRecord(
                id=prompt.id,
                category=prompt.category,
                prompt_hash=prompt.hash,
                prompt_tokens=len(prompt.ids),
                continuation=continuation,
                rounds=tuple(counter.rounds),
                histogram=histogram_of(counter.rounds, limits.num_steps),
                eos_round=counter.eos_round,
                proposals=table[0],
                logprobs=table[1],
                correct=table[2],
                target=check,
                # A continuation in which no round could start has no position to sample.
                sketches=sketch_row if limits.starts(continuation) else np.full_like(sketch_row, np.nan),
            )
        )
    return records


def _samples(prompts: Sequence[Prompt], starts: Sequence[tuple[int, ...]]) -> Tensor:
    """Return the positions that are sketched, int64 [B, POSITIONS]: the last that each round knows."""
    return torch.tensor(
        [[len(prompt.ids) - 1 + start for start in row] for prompt, row in zip(prompts, starts, strict=True)]
    )


def _fused(draft: Eagle3Draft, states: Tensor, samples: Tensor) -> Tensor:
    """Return the sketches of what `fc` makes of the states, float32 [B, POSITIONS, WIDTH]."""
    chosen = torch.gather(states.to(draft.dtype), 1, samples[..., None].expand(-1, -1, states.shape[-1]))
    everything = torch.arange(samples.shape[1], device=samples.device).expand_as(samples)
    return sketch(draft.fuse(chosen), everything)


_Table = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class _Tables:
    """What the draft did on a batch.

    Attributes:
        rows: Proposals, log-probabilities and correct of each prompt, each [n, k].
        sketches: Each step's logits at the sampled positions, float32 [B, POSITIONS, k, WIDTH].
    """

    rows: list[_Table]
    sketches: Tensor


def _run_draft(draft: Eagle3Draft, inverse: Tensor, states: Tensor, seen: Seen, limits: Limits) -> _Tables:
    """Run the draft at every position at which a round could start."""
    ids, prompts, continuations, steps = seen.ids, seen.prompts, seen.continuations, limits.num_steps
    counts = [limits.starts(continuation) for continuation in continuations]
    width = max(counts)
    if width == 0:
        empty = (np.zeros((0, steps), np.int64), np.zeros((0, steps), np.float32), np.zeros((0, steps), np.int8))
        return _Tables(
            [empty for _ in prompts],
            torch.zeros(len(prompts), POSITIONS, steps, WIDTH, device=ids.device, dtype=norm_dtype(draft.dtype)),
        )
    # Rows have different numbers of starts. Shorter rows repeat their last start, which costs a little and needs no
    # mask: the surplus is cut off below.
    offsets = torch.arange(width, device=ids.device)
    first = torch.tensor([len(prompt.ids) - 1 for prompt in prompts], device=ids.device)
    last = torch.tensor([max(count - 1, 0) for count in counts], device=ids.device)
    starts = first[:, None] + torch.minimum(offsets, last[:, None])
    chains = ParallelChains(draft, ids[:, 1:], states.to(draft.dtype), starts)
    # Both passes share step 0, whose input is known: the teacher-forced pass goes on with `chains`, the free one with
    # this copy.
    first_step = chains.only(offsets.expand(len(prompts), -1))
    samples = torch.tensor(seen.starts, device=ids.device)
    forced = _teacher_forced(draft, chains, inverse, ids, starts, samples, steps)
    proposed = _free(draft, first_step, forced.argmaxes, ids, starts).cpu().numpy()
    rows = []
    for row, (continuation, count) in enumerate(zip(continuations, counts, strict=True)):
        # Steps whose token lies past the end of the continuation were computed on padding.
        known = np.arange(count)[:, None] + 1 + np.arange(steps) < len(continuation)
        rows.append(
            (
                proposed[row, :count],
                np.where(known, forced.logprobs[row, :count], np.float32("nan")),
                np.where(known, forced.correct[row, :count], np.int8(-1)).astype(np.int8),
            )
        )
    return _Tables(rows, forced.sketches)


def _free(draft: Eagle3Draft, chains: ParallelChains, forced: Tensor, ids: Tensor, starts: Tensor) -> Tensor:
    """Return the chains that the draft proposes when each step reads its own token, int64 [B, n, k].

    A chain whose every token is the one that the teacher-forced pass read next is that pass' own chain. Only the others
    are run.

    Args:
        draft: The loaded draft that proposes.
        chains: Chains at step 0.
        forced: int64 [B, n, k]: the teacher-forced pass' argmax at each step, target ids.
        ids: int64 [B, T+1]: prompts and continuations.
        starts: int64 [B, n]: positions of step 0.
    """
    steps = forced.shape[-1]
    # The last step's token is not an input of anything, so it need not agree.
    differs = torch.zeros_like(starts, dtype=torch.bool)
    for step in range(steps - 1):
        differs |= forced[..., step] != _known(ids, starts + 2 + step)
    most = int(differs.sum(1).max())
    if most == 0:
        return forced
    # Rows with fewer such chains fill up with others, whose result is the same either way.
    index = differs.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :most]
    some = chains.only(index)
    tokens = [torch.gather(forced[..., 0], 1, index)]
    for _ in range(1, steps):
        tokens.append(draft.to_target(draft.logits(some.step(tokens[-1])).argmax(-1)))
    return forced.scatter(1, index[..., None].expand(-1, -1, steps), torch.stack(tokens, -1))


def _known(ids: Tensor, positions: Tensor) -> Tensor:
    """Return the tokens at positions [B, n]; past the end, the last one."""
    return torch.gather(ids, 1, positions.clamp(max=ids.shape[1] - 1))


@dataclass(frozen=True)
class _Forced:
    """The draft with the known tokens as inputs of steps 1 and later.

    Attributes:
        argmaxes: The most likely token at each step, target ids, int64 [B, n, k].
        logprobs: Log-probabilities of the known tokens, float32 [B, n, k]; NaN outside the draft's vocabulary.
        correct: Whether the argmax is the known token, int8 [B, n, k].
        sketches: The logits at the sampled chains, float32 [B, POSITIONS, k, WIDTH].
    """

    argmaxes: Tensor
    logprobs: np.ndarray
    correct: np.ndarray
    sketches: Tensor


def _teacher_forced(
    draft: Eagle3Draft,
    chains: ParallelChains,
    inverse: Tensor,
    ids: Tensor,
    starts: Tensor,
    samples: Tensor,
    steps: int,
) -> _Forced:
    """Run the draft with the known tokens as inputs of steps 1 and later.

    Args:
        draft: The loaded draft that is fed the known tokens.
        chains: Chains at step 0, which this goes on with.
        inverse: int64 [vocab]: the draft id of each target id, -1 if the draft does not have it.
        ids: int64 [B, T+1]: prompts and continuations.
        starts: int64 [B, n]: positions of step 0.
        samples: int64 [B, POSITIONS]: which of the n chains are sketched.
        steps: Chain length k.

    Returns:
        Entries whose known token lies past the end of `ids` are meaningless.
    """
    argmaxes, logprobs, correct, sketches = [], [], [], []
    for step in range(steps):
        hidden = chains.hidden if step == 0 else chains.step(_known(ids, starts + 1 + step))
        logits = draft.logits(hidden)
        sketches.append(sketch(logits, samples))
        # The chain at j predicts token j+2 at step 0: its input is already the token after j.
        known = inverse[_known(ids, starts + 2 + step)]
        logprobs.append(token_logprobs(logits, known))
        argmax = logits.argmax(-1)
        argmaxes.append(draft.to_target(argmax))
        correct.append((argmax == known).to(torch.int8))
    return _Forced(
        torch.stack(argmaxes, dim=-1),
        torch.stack(logprobs, dim=-1).cpu().numpy(),
        torch.stack(correct, dim=-1).cpu().numpy(),
        torch.stack(sketches, dim=2),
    )
