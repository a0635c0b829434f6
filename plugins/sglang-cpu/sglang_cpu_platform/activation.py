"""The functions behind the entry points: both do nothing unless `SGLANG_PLATFORM` names this platform."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import logging
import os

from sglang_cpu_platform import KNOWN_VERSIONS, NAME

__all__ = ["activate", "mend"]

_LOGGER = logging.getLogger("sglang_cpu_platform")
# Chooses the sizes of tiles by the GPU.
_TILES = "sglang.kernels.ops.attention.extend_attention._get_block_sizes_for_extend_attention"


def _asked() -> bool:
    return os.environ.get("SGLANG_PLATFORM") == NAME


def activate() -> str | None:
    """Return the platform class that SGLang is to use; `None` unless it was asked for.

    If no platform is named, SGLang takes the only plugin that answers. On a GPU server that must not be this one.
    """
    if not _asked():
        return None
    version = importlib.metadata.version("sglang")
    if version not in KNOWN_VERSIONS:
        _LOGGER.warning(
            "sglang-cpu-platform is made for SGLang %s and was never run with the installed %s: what follows may fail "
            "or be wrong for that reason",
            " or ".join(KNOWN_VERSIONS),
            version,
        )
    return "sglang_cpu_platform.platform.InterpretedCpuPlatform"


def mend() -> None:
    """Change, in this process, what the platform interface cannot."""
    if not _asked():
        return
    import torch
    from sglang.kernels.ops.speculative import spec_tree
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    from triton.runtime import interpreter

    # The one branch of the tree functions that uses SGLang's own Triton kernels.
    spec_tree._is_xpu = True
    if not torch.cuda.is_available():
        # Eagle3DeepseekV2ForCausalLM waits for CUDA after it has loaded its weights, on whichever device.
        torch.cuda.synchronize = _nothing_to_wait_for
    # The interpreter checks every integer operation for overflow, which takes a third of the time. Compiled kernels do
    # so in debug mode only.
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
    HookRegistry.register(_TILES, _tiles, HookType.AFTER)


def _tiles(sizes: tuple[int, ...], *_shape: int, **_named_shape: int) -> tuple[int, ...]:
    """Return sizes of an attention kernel's tiles that suit the interpreter.

    An operation on a tile takes the same time up to some thousand numbers, so a few wide tiles are fast. A verification
    has few rows.
    """
    *widths, _rows, _columns, warps = sizes
    return (*widths, 16, 128, warps)


def _nothing_to_wait_for(device: object = None) -> None:
    del device
