"""What a decoder's rounds show: the draft's log-probabilities and the sketches of what it was given and computed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from harness.counts.stages import WIDTH, stage_names
from harness.engines.reference.loaded import LoadedModels
from harness.engines.shared.decoded import RoundView
from harness.models.draft import Eagle3Draft
from harness.models.precision import norm_dtype
from harness.models.sketch import sketch, sketch_parts

__all__ = ["Proposed", "RoundViewer", "shown_stages", "token_logprobs"]


@dataclass(frozen=True)
class Proposed:
    """A chain in each row, with what the draft was given and computed for it.

    Attributes:
        chain: int64 [B, k], target ids.
        states: The concatenated boundaries [B, 1, W] at the round's start.
        fused: What `fc` made of them, [B, 1, H].
        logits: The draft's logits at each step [B, k, draft vocab].
    """

    chain: Tensor
    states: Tensor
    fused: Tensor
    logits: Tensor


def shown_stages(num_layers: int, num_slots: int, num_steps: int) -> tuple[str, ...]:
    """Return the stages that a round shows: those from the concatenation on."""
    return stage_names(num_layers, num_slots, num_steps)[num_layers + 1 :]


def token_logprobs(logits: Tensor, known: Tensor) -> Tensor:
    """Return the log-probabilities of known tokens.

    Args:
        logits: [..., draft vocab].
        known: int64 [...]: draft ids, -1 for a token outside the draft's vocabulary.

    Returns:
        float32 [...]: NaN for a token outside the vocabulary. What was computed and is not finite is -inf, since NaN
        means "not asked".
    """
    scores = torch.log_softmax(logits, dim=-1, dtype=norm_dtype(logits.dtype))
    found = torch.gather(scores, -1, known.clamp(min=0)[..., None])[..., 0]
    found = found.masked_fill(~torch.isfinite(found), float("-inf"))
    return found.masked_fill(known < 0, float("nan")).float()


class RoundViewer:
    """Makes the views of rounds.

    Args:
        loaded: The models that decode.
    """

    def __init__(self, loaded: LoadedModels) -> None:
        self._draft: Eagle3Draft = loaded.draft
        self._inverse = loaded.draft.from_target()
        self._slots = len(loaded.boundaries)
        self._unseen = loaded.target.spec.num_layers + 1

    def views(self, proposed: Proposed, predicted: Tensor) -> list[RoundView]:
        """Return each row's view.

        Args:
            proposed: The round's chains.
            predicted: int64 [B, k+1]: what the target chose after the last known token and after each of the chain.
        """
        logprobs = token_logprobs(proposed.logits, self._inverse[predicted[:, : proposed.chain.shape[1]]])
        rows, steps = proposed.chain.shape
        start = torch.zeros(rows, 1, dtype=torch.int64, device=predicted.device)
        every = torch.arange(steps, device=predicted.device).expand(rows, -1)
        shown = torch.cat(
            (
                sketch_parts(proposed.states, start, self._slots)[:, 0],
                sketch(proposed.fused, start),
                sketch(proposed.logits, every),
            ),
            dim=1,
        ).float()
        unseen = torch.full((rows, self._unseen, WIDTH), float("nan"))
        sketches = torch.cat((unseen, shown.cpu()), dim=1).numpy()
        sketched = torch.arange(sketches.shape[1]).numpy() >= self._unseen
        return [
            RoundView(row, sketch_row, sketched)
            for row, sketch_row in zip(logprobs.cpu().numpy(), sketches, strict=True)
        ]
