"""A pair's models in memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from harness.counts.rounds import Limits
from harness.errors import InputError
from harness.models.draft import Eagle3Draft
from harness.models.draft_weights import load_draft
from harness.models.placement import Placement
from harness.models.precision import DTYPES
from harness.models.target import Target, load_target
from harness.pair.pair import Pair

__all__ = ["LoadedModels", "LoadedPair", "load"]


@dataclass(frozen=True)
class LoadedModels:
    """Models in memory with what every decoder of them needs to know.

    Attributes:
        target: The target, on the engine's device and in its dtype.
        draft: The draft that reads this target, on the same device.
        boundaries: The boundaries captured, in the order of concatenation.
        limits: What ends a continuation, and the chain length.
    """

    target: Target
    draft: Eagle3Draft
    boundaries: tuple[int, ...]
    limits: Limits


@dataclass(frozen=True)
class LoadedPair(LoadedModels):
    """A pair's models in memory.

    Attributes:
        pair: What the models were loaded from, with its settings.
    """

    pair: Pair


def load(pair: Pair) -> LoadedPair:
    """Load a pair's models.

    Raises:
        InputError: A checkpoint cannot be used as it is, or the device is not available.
    """
    pair.require_formable()
    _require_states(pair)
    engine = pair.settings.engine
    dtype = DTYPES[engine.dtype]
    try:
        # Read back: the meta device holds no values.
        torch.zeros(1, device=engine.device).item()
    except Exception as error:  # noqa: BLE001 - each missing backend fails in its own way
        raise InputError(
            "the device is not available",
            file=pair.file,
            key="engine.device or --device",
            found=f"{engine.device or 'nothing'}: {error}",
            expected="cpu, or cuda if torch sees a GPU",
        ) from None
    pair.fetch_weights()
    placement = Placement(engine.device, engine.device_map, pair.file)
    target = load_target(pair.target, dtype=dtype, placement=placement)
    draft = load_draft(
        pair.draft,
        num_boundaries=len(pair.boundaries),
        target_embedding=target.embedding,
        dtype=dtype,
        device=engine.device,
    )
    return LoadedPair(target, draft, pair.boundaries, pair.limits, pair)


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
