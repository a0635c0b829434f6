"""What SGLang calls through the entry points: both do nothing unless `SGLANG_PLATFORM` names this platform."""

from __future__ import annotations

import importlib.metadata
import logging
import os

from sglang_cpu_platform import KNOWN_VERSIONS, NAME

__all__ = ["activate", "mend"]

_LOGGER = logging.getLogger("sglang_cpu_platform")


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

    # The only branch of the tree functions that takes SGLang's own Triton kernels.
    spec_tree._is_xpu = True
    if not torch.cuda.is_available():
        # Eagle3DeepseekV2ForCausalLM waits for the device after it has loaded its weights, whichever that is.
        torch.cuda.synchronize = _nothing_to_wait_for


def _nothing_to_wait_for(device: object = None) -> None:
    del device
