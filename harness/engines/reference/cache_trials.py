"""Which of the ways to decode with a cache compute what the target's forward without one does, tried on a short text.

Each release of transformers has targets whose states are not those of its common caches: some raise, some start again
from nothing at each token, without a word. A list of names would be out of date with the next release.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from harness.engines.reference.loaded import LoadedModels
from harness.engines.reference.memory import is_out_of_memory
from harness.engines.reference.ragged_cache import RaggedCache
from harness.engines.reference.target_cache import growing_cache, keep_first, positions_of
from harness.errors import InputError
from harness.models.precision import MOST_DEVIATION, deviation
from harness.models.target import Target, some_ids

__all__ = ["LEAST_PROMPT", "CacheUse", "decodes_together", "fault_of", "require_revocable"]

LEAST_PROMPT = 2
"""Tokens that a prompt must have for the use `ALONE`: a target with a state takes a single one for a step."""
# Tokens of a prompt, of it with the text from there on, and of a round of verification.
_PROMPT, _LENGTH, _ROUND = 9, 16, 4
# By how much the second row's prompt is shorter.
_SHORTER = 4


# Layers whose state is keys and values by position. Any other kind folds the past into a state that nothing undoes.
_BY_POSITION = {"full_attention", "sliding_attention", "chunked_attention"}


class CacheUse(enum.Enum):
    """A way to decode with a cache."""

    TOGETHER = "prompts of several lengths together, padded"
    ALONE = "one prompt, with the layers of a cache that its config asks for"
    REVOCABLE = "one prompt, of which tokens are taken back"


_FAULTS: WeakKeyDictionary[Target, dict[CacheUse, str | None]] = WeakKeyDictionary()


def fault_of(target: Target, use: CacheUse) -> str | None:
    """Return what is wrong with this use of a cache of a target, or `None`; it is tried once for each target.

    Raises:
        InputError: The target does not compute usable logits without a cache either.
    """
    known = _FAULTS.setdefault(target, {})
    if use not in known:
        known[use] = _tried(target, use)
    return known[use]


def decodes_together(target: Target) -> bool:
    """Return whether padded prompts of several lengths are decoded as each alone would be."""
    # No trial of a few tokens reaches the end of a window.
    return target.full_attention and fault_of(target, CacheUse.TOGETHER) is None


def require_revocable(loaded: LoadedModels) -> None:
    """Refuse a target that cannot take a rejected token back.

    Raises:
        InputError: It has linear attention or another recurrent layer, or its cache fails when it is tried.
    """
    config = loaded.target.config.get_text_config()
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ()
    others = sorted(set(kinds) - _BY_POSITION)
    if others:
        raise InputError(
            "the target has layers whose state cannot be taken back when a draft token is rejected",
            file=loaded.target.spec.path / "config.json",
            key="layer_types",
            found=", ".join(others),
            expected=f"for verify rounds: {', '.join(sorted(_BY_POSITION))}",
            next_step="measure it by replay, which needs no rounds: --engine reference",
        )
    if (fault := fault_of(loaded.target, CacheUse.REVOCABLE)) is not None:
        raise InputError(
            f"the cache of {loaded.target.spec.architecture} cannot take rejected tokens back, with this transformers",
            file=loaded.target.spec.path / "config.json",
            key="architectures",
            found=fault,
            expected="logits as they are computed without a cache",
            next_step="measure it by replay, which needs no rounds: --engine reference",
        )


_Trial = Callable[[Target, Tensor], tuple[Tensor, Tensor]]


@torch.inference_mode()
def _tried(target: Target, use: CacheUse) -> str | None:
    ids = some_ids(target, 2 if use is CacheUse.TOGETHER else 1, _LENGTH)
    whole = target.forward(ids)
    try:
        found, positions = _TRIALS[use](target, ids)
    except Exception as error:
        # Neither memory nor tensors on two devices are the cache's fault: hidden here, they would only cost speed.
        if is_out_of_memory(error) or "device" in str(error).lower():
            raise
        return f"{type(error).__name__}: {error}"
    expected = torch.gather(whole, 1, positions[..., None].expand(-1, -1, whole.shape[-1]))
    differs = deviation(found, expected)
    # Also if it is not a number.
    if differs <= MOST_DEVIATION[target.dtype]:
        return None
    return f"its logits differ by {differs:.2g} of their spread from those computed without a cache"


def _together(target: Target, ids: Tensor) -> tuple[Tensor, Tensor]:
    cache = RaggedCache(target.spec.num_layers, len(ids), _LENGTH)
    positions = torch.arange(_PROMPT, device=ids.device).expand(len(ids), -1)
    target.forward(ids[:, :_PROMPT], cache=cache, mask=cache.at(positions, target.dtype), positions=positions, keep=1)
    starts = torch.tensor([[_PROMPT], [_PROMPT - _SHORTER]], device=ids.device)
    logits, visited = [], []
    for step in range(_LENGTH - _PROMPT):
        at = starts + step
        tokens = torch.gather(ids, 1, at)
        logits.append(target.forward(tokens, cache=cache, mask=cache.at(at, target.dtype), positions=at))
        visited.append(at)
    return torch.cat(logits, dim=1), torch.cat(visited, dim=1)


def _alone(target: Target, ids: Tensor) -> tuple[Tensor, Tensor]:
    every = positions_of(ids, 0)
    logits, visited = [], []
    # A state that is made of several tokens may not be full after the shortest prompt.
    for length in (LEAST_PROMPT, _PROMPT):
        cache = DynamicCache(config=target.config)
        target.forward(ids[:, :length], cache=cache, positions=every[:, :length], keep=1)
        for position in range(length, _LENGTH):
            here = slice(position, position + 1)
            logits.append(target.forward(ids[:, here], cache=cache, positions=every[:, here]))
            visited.append(every[:, here])
    return torch.cat(logits, dim=1), torch.cat(visited, dim=1)


def _revocable(target: Target, ids: Tensor) -> tuple[Tensor, Tensor]:
    cache = growing_cache()
    prompt = ids[:, :_PROMPT]
    target.forward(prompt, cache=cache, positions=positions_of(prompt, 0), keep=1)
    # A round of which nothing is accepted, the tokens of the text backwards, and then one with the text itself.
    rejected = ids.flip(1)[:, :_ROUND]
    target.forward(rejected, cache=cache, positions=positions_of(rejected, _PROMPT))
    keep_first(cache, _PROMPT)
    rounds = [ids[:, _PROMPT : _PROMPT + _ROUND], ids[:, _PROMPT + _ROUND :]]
    logits, position = [], _PROMPT
    for tokens in rounds:
        logits.append(target.forward(tokens, cache=cache, positions=positions_of(tokens, position)))
        position += tokens.shape[1]
    return torch.cat(logits, dim=1), positions_of(ids, 0)[:, _PROMPT:]


_TRIALS: dict[CacheUse, _Trial] = {
    CacheUse.TOGETHER: _together,
    CacheUse.ALONE: _alone,
    CacheUse.REVOCABLE: _revocable,
}
