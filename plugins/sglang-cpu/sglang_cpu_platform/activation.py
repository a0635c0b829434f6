"""What SGLang calls through the entry points: both do nothing unless `SGLANG_PLATFORM` names this platform."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import logging
import os

from sglang_cpu_platform import KNOWN_VERSIONS, NAME

__all__ = ["activate", "mend"]

_LOGGER = logging.getLogger("sglang_cpu_platform")
# The function by which SGLang chooses tiles, by the GPU that it finds.
_TILES = "sglang.kernels.ops.attention.extend_attention._get_block_sizes_for_extend_attention"


def _asked() -> bool:
    return os.environ.get("SGLANG_PLATFORM") == NAME


def activate() -> str | None:
    """Return the platform class that SGLang is to use, `None` unless it was asked for.

    SGLang takes the only plugin that answers where no platform is named. On a GPU server that must not be this one.
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
    """Change what the platform interface has no seam for, in this process."""
    if not _asked():
        return
    import torch
    from sglang.kernels.ops.speculative import spec_tree
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    from triton.runtime import interpreter

    # The only branch of the tree functions that takes SGLang's own Triton kernels.
    spec_tree._is_xpu = True
    if not torch.cuda.is_available():
        # Eagle3DeepseekV2ForCausalLM waits for the device after it has loaded its weights, whichever that is.
        torch.cuda.synchronize = _nothing_to_wait_for
    # The interpreter checks every integer operation for overflow, which compiled kernels do in debug mode only. It is
    # a third of the time.
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
    HookRegistry.register(_TILES, _tiles, HookType.AFTER)


def _tiles(sizes: tuple[int, ...], *_shape: int, **_named_shape: int) -> tuple[int, ...]:
    """Return the sizes of an attention kernel's tiles as they suit the interpreter.

    Each operation on a tile costs the same up to some thousand numbers, so few wide tiles are fast; and a verification
    has few rows.
    """
    *widths, _rows, _columns, warps = sizes
    return (*widths, 16, 128, warps)


def _nothing_to_wait_for(device: object = None) -> None:
    del device
