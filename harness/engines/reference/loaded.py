"""A pair's models in memory, and what is done with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from harness.counts.rounds import Limits
from harness.counts.run import PromptRecord
from harness.engines.base import Progress
from harness.engines.reference.agreement import agreement
from harness.engines.reference.greedy import greedy_texts
from harness.engines.reference.replay import DraftInput, replay, replay_all
from harness.errors import InputError
from harness.models.draft import Eagle3Draft
from harness.models.draft_weights import load_draft
from harness.models.precision import DTYPES
from harness.models.target import Target, load_target
from harness.pair.pair import Pair
from harness.pair.prompts import Prompt

__all__ = ["LoadedPair", "limits_of", "load"]


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
        self, prompts: Sequence[Prompt], texts: Sequence[tuple[int, ...]], progress: Progress
    ) -> list[PromptRecord]:
        """Replay known texts."""
        progress.begin("replay", len(prompts))
        return replay(
            self.target, self.draft, self.pair.boundaries, prompts, texts, self.limits, advance=progress.advance
        )

    def replay_all(
        self,
        wirings: Sequence[DraftInput],
        prompts: Sequence[Prompt],
        texts: Sequence[tuple[int, ...]],
        progress: Progress,
    ) -> list[list[PromptRecord]]:
        """Replay known texts in several wirings, on one run of the target."""
        progress.begin(f"replay in {len(wirings)} wirings", len(prompts))
        return replay_all(self.target, self.draft, wirings, prompts, texts, self.limits, advance=progress.advance)

    def judge_output(
        self, records: Sequence[PromptRecord], prompts: Sequence[Prompt], texts: Sequence[tuple[int, ...]]
    ) -> list[PromptRecord]:
        """Add to decoders' records whether the target agrees with what they put out, and with the golden texts.

        Where it would not have chosen a token that was put out, it decodes the prompt twice without speculation: a
        target that does not agree with itself says nothing of speculation.
        """
        own = agreement(self.target, prompts, [record.continuation for record in records])
        golden = agreement(self.target, prompts, texts)
        judged = []
        for prompt, record, ours, theirs in zip(prompts, records, own, golden, strict=True):
            deterministic = None
            if not ours.agrees.all():
                arms = [greedy_texts(self.target, [prompt.ids], self.limits, lambda _: None) for _ in range(2)]
                deterministic = arms[0] == arms[1]
            judged.append(replace(record, own=ours, target=theirs, deterministic=deterministic))
        return judged


def load(pair: Pair) -> LoadedPair:
    """Load a pair's models.

    Raises:
        InputError: A checkpoint cannot be used as it stands, or the device is not there.
    """
    pair.require_formable()
    _require_states(pair)
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


def _require_states(pair: Pair) -> None:
    trained, served = pair.wiring.trained, pair.wiring.served
    if pair.wiring.loses_states:
        raise InputError(
            f"{served.convention} captures fewer states than the draft was trained on",
            file=pair.draft.config_file,
            key=pair.draft.ids_key,
            found=f"boundaries {list(served.boundaries)} for ids {list(served.ids)}",
            expected=f"{list(trained.boundaries)}, as trained ({trained.convention})",
            next_step="that engine keeps no repeated ids and may never reach the last boundary; its draft would "
            "die with a shape error",
        )
