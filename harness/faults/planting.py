"""How faults that are no matter of layer ids are put into a loaded pair.

Nothing here touches the pair itself: each function returns a copy, a filter or a context manager that watches, so that
the next fault starts from the right wiring again. `None` says that this pair cannot have the fault, or that it would
change nothing, which no detector could see.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from harness.engines.reference.loaded import LoadedPair
from harness.engines.reference.replay import StateFilter
from harness.models.capture import decoder_blocks
from harness.models.draft import Eagle3Draft
from harness.models.placement import Placement
from harness.models.target import Target
from harness.pair.draft_spec import DraftSpec

__all__ = [
    "dropped_residual",
    "ignored_map",
    "in_4_bits",
    "in_bfloat16",
    "in_int8",
    "norm_on_last_slot",
    "recycled_post_norm",
    "recycled_pre_norm",
    "stuck_positions",
]


def norm_on_last_slot(loaded: LoadedPair) -> StateFilter | None:
    """Apply the target's final norm to the last slot, as a capture that comes too late does."""
    norm = getattr(cast(Any, loaded.target.model).get_decoder(), "norm", None)
    if norm is None:
        return None
    width = loaded.target.spec.hidden_size

    def normed(states: Tensor) -> Tensor:
        return torch.cat((states[..., :-width], norm(states[..., -width:])), dim=-1)

    return normed


def recycled_post_norm(loaded: LoadedPair) -> Eagle3Draft | None:
    """Let the draft's own steps read its output after the final norm."""
    return _recycling(loaded, norm_output=True)


def recycled_pre_norm(loaded: LoadedPair) -> Eagle3Draft | None:
    """Let the draft's own steps read its output before the final norm."""
    return _recycling(loaded, norm_output=False)


def _recycling(loaded: LoadedPair, *, norm_output: bool) -> Eagle3Draft | None:
    spec = loaded.draft.spec
    if spec.norm_output == norm_output or not _steps_again(loaded):
        return None
    flags = replace(spec.flags, values={**spec.flags.values, "norm_output": norm_output})
    return _rebuilt(loaded.draft, Eagle3Draft, replace(spec, flags=flags))


def ignored_map(loaded: LoadedPair) -> Eagle3Draft | None:
    """Take the draft's ids for target ids."""
    draft = loaded.draft
    if not bool(draft.d2t.any()):
        return None
    unmapped = _rebuilt(draft, Eagle3Draft, draft.spec)
    unmapped.d2t = torch.zeros_like(draft.d2t)
    return unmapped


class _StuckDraft(Eagle3Draft):
    """A draft whose steps all rotate by the position of the first."""

    def step_positions(self, starts: Tensor, step: int) -> Tensor:  # noqa: ARG002 - the fault is that it does not count
        return starts


def stuck_positions(loaded: LoadedPair) -> Eagle3Draft | None:
    """Leave every step of a chain at the position of the first."""
    return _rebuilt(loaded.draft, _StuckDraft, loaded.draft.spec) if _steps_again(loaded) else None


def _steps_again(loaded: LoadedPair) -> bool:
    """Whether a chain has a step that reads the draft's own output."""
    return loaded.limits.num_steps > 1


def _rebuilt(draft: Eagle3Draft, kind: type[Eagle3Draft], spec: DraftSpec) -> Eagle3Draft:
    """Return a draft of another class or spec that shares the weights of `draft`."""
    # On the meta device, since a draft of a large target would be initialised with gigabytes that go unread.
    with torch.device("meta"):
        made = kind(spec, draft.num_boundaries)
    made.load_state_dict(draft.state_dict(), assign=True)
    # The rotary frequencies are not in a state dict; they are computed from the spec, on the CPU and in float32.
    return made.to(device=draft.d2t.device, dtype=draft.dtype).eval().requires_grad_(False)


def dropped_residual(loaded: LoadedPair) -> AbstractContextManager[Mapping[int, Tensor]] | None:
    """Capture, at each boundary, what the MLP before it adds to the residual stream, instead of the stream.

    An engine that keeps the two apart has them as `hidden` and `residual` between two blocks, and captures `hidden`
    alone. The embedding is the stream itself: at boundary 0 nothing can be dropped.
    """
    blocks = decoder_blocks(loaded.target.model, loaded.target.spec.num_layers)
    # Some families norm the output of the MLP before they add it.
    parts = [getattr(block, "post_feedforward_layernorm", getattr(block, "mlp", None)) for block in blocks]
    wanted = {boundary: parts[boundary - 1] for boundary in loaded.pair.boundaries if boundary > 0}
    known = {boundary: part for boundary, part in wanted.items() if part is not None}
    return _outputs_of(known) if known and len(known) == len(wanted) else None


@contextmanager
def _outputs_of(parts: Mapping[int, nn.Module]) -> Iterator[dict[int, Tensor]]:
    """Yield, by boundary, what the latest forward's part output there."""
    kept: dict[int, Tensor] = {}

    def keep(boundary: int) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            # MLPs of experts return their routing too.
            state = output[0] if isinstance(output, tuple) else output
            # A copy: what comes next may add to it in place.
            kept[boundary] = state.detach().clone()

        return hook

    handles = [part.register_forward_hook(keep(boundary)) for boundary, part in parts.items()]
    try:
        yield kept
    finally:
        for handle in handles:
            handle.remove()


def in_bfloat16(loaded: LoadedPair) -> Target | None:
    """Return the target with weights and arithmetic in bfloat16."""
    if loaded.target.dtype == torch.bfloat16:
        return None
    # The weights alone: the buffers of rotary frequencies stay exact, as in a target that is loaded in bfloat16.
    return _changed(loaded.target, _cast_weights)


def _cast_weights(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)


def in_int8(loaded: LoadedPair) -> Target | None:
    """Return the target with the matrices of its blocks rounded to 8 bits, with a scale for each output."""
    return _changed(loaded.target, lambda model: _round_weights(model, loaded.target.spec.num_layers, 8, None))


def in_4_bits(loaded: LoadedPair) -> Target | None:
    """Return the target with the matrices of its blocks rounded to 4 bits, with a scale for each 32 inputs."""
    blocks = decoder_blocks(loaded.target.model, loaded.target.spec.num_layers)
    if any(isinstance(part, nn.Linear) and part.in_features % 32 for part in blocks.modules()):
        return None
    return _changed(loaded.target, lambda model: _round_weights(model, loaded.target.spec.num_layers, 4, 32))


def _changed(target: Target, change: Callable[[nn.Module], object]) -> Target:
    model = copy.deepcopy(target.model)
    with torch.no_grad():
        change(model)
    return Target(model, target.spec, Placement(str(target.device)))


def _round_weights(model: nn.Module, layers: int, bits: int, group: int | None) -> None:
    """Round the matrices of the blocks to symmetric integers.

    Args:
        model: Changed in place.
        layers: How many decoder blocks it has.
        bits: Width of the integers.
        group: How many inputs share a scale; `None` for all of an output's.
    """
    most = 2 ** (bits - 1) - 1
    for part in decoder_blocks(model, layers).modules():
        if isinstance(part, nn.Linear):
            weight = part.weight.data
            grouped = weight.reshape(-1, group or weight.shape[1])
            # An output whose weights are all zero still needs a scale to divide by.
            scale = grouped.abs().amax(1, keepdim=True).clamp(min=1e-12) / most
            part.weight.data = ((grouped / scale).round().clamp(-most, most) * scale).reshape(weight.shape)
