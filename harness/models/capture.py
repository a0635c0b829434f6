"""Capturing a target's hidden states at boundaries, by hooks on its decoder blocks.

Boundary k, the aux hidden state after block k, is read from the output of the k-th block, never from transformers'
`hidden_states`, whose last entry is taken after the final norm. So boundary N is the residual stream before that norm,
as everywhere in this project.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from harness.errors import InputError

__all__ = ["BoundaryCapture", "BoundaryWatch", "decoder_blocks"]


def decoder_blocks(model: nn.Module, num_layers: int) -> nn.ModuleList:
    """Return the target's decoder blocks.

    Raises:
        InputError: The model does not have a list of `num_layers` blocks in the usual place.
    """
    decoder = cast(Any, model).get_decoder()
    blocks = getattr(decoder, "layers", None)
    if not isinstance(blocks, nn.ModuleList) or len(blocks) != num_layers:
        raise InputError(
            "the target's decoder blocks cannot be found",
            found=f"{type(model).__name__} without {num_layers} layers",
            expected="a transformers decoder with a layers list",
            next_step="measure it by an engine that serves it, with --engine sglang or --endpoint",
        )
    return blocks


def _watch_boundaries(
    model: nn.Module, num_layers: int, boundaries: Iterable[int], receive: Callable[[int, Tensor], None]
) -> list[torch.utils.hooks.RemovableHandle]:
    """Call `receive` with each of the boundaries and its state [B, T, H] as forward calls pass it.

    Args:
        model: A transformers causal language model.
        num_layers: Its number of decoder blocks, N.
        boundaries: Boundaries from 0 to N.
        receive: Must not keep the state itself: a later block may update it in place.

    Returns:
        The handles, whose `remove` ends the watch.
    """
    blocks = decoder_blocks(model, num_layers)

    def before_first(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        receive(0, args[0] if args else kwargs["hidden_states"])

    def after(boundary: int) -> Callable[..., None]:
        def hook(_module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
            receive(boundary, output[0] if isinstance(output, tuple) else output)

        return hook

    return [
        blocks[boundary - 1].register_forward_hook(after(boundary))
        if boundary
        else blocks[0].register_forward_pre_hook(before_first, with_kwargs=True)
        for boundary in boundaries
    ]


class BoundaryWatch:
    """Context manager that sees the states at chosen boundaries during forward calls; `_keep` decides what it keeps.

    Args:
        model: A transformers causal language model.
        num_layers: Its number of decoder blocks, N.
        boundaries: Boundaries from 0 to N, in any order, repeats allowed.
        device: Where the states are kept; each on the device of its block if `None`.
    """

    def __init__(
        self,
        model: nn.Module,
        num_layers: int,
        boundaries: Sequence[int],
        *,
        device: torch.device | None = None,
    ) -> None:
        decoder_blocks(model, num_layers)
        self._watched = (model, num_layers)
        self._device = device
        self.boundaries = tuple(boundaries)
        outside = [boundary for boundary in self.boundaries if not 0 <= boundary <= num_layers]
        if outside:
            raise InputError("the boundary does not exist", found=outside, expected=f"0 to {num_layers}")
        self._kept: dict[int, Tensor] = {}
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

    def __enter__(self) -> Self:
        self._handles = _watch_boundaries(*self._watched, set(self.boundaries), self._keep)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _keep(self, boundary: int, state: Tensor) -> None:
        raise NotImplementedError


class BoundaryCapture(BoundaryWatch):
    """Keeps the states [B, T, H] themselves; its arguments are those of `BoundaryWatch`."""

    def concatenated(self) -> Tensor:
        """Return the latest forward's states, concatenated in the boundaries' order: [B, T, len(boundaries) * H]."""
        return torch.cat([self._kept[boundary] for boundary in self.boundaries], dim=-1)

    def state(self, boundary: int) -> Tensor:
        """Return the latest forward's state [B, T, H] at one of the boundaries."""
        return self._kept[boundary]

    def _keep(self, boundary: int, state: Tensor) -> None:
        # A copy: a later block may update its input in place, and the captured state would follow.
        self._kept[boundary] = state.detach().to(device=self._device or state.device, copy=True)
