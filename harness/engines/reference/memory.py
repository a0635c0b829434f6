"""How many tokens of a batch fit in memory, and what to do if they do not."""

from __future__ import annotations

from pathlib import Path

import torch

from harness.models.target import Target

__all__ = ["batch_tokens", "is_out_of_memory"]

# Of what is free: the rest is for weights that are cast, kernels' scratch space, and other processes.
_SHARE = 0.25
_UNKNOWN = 4 << 30
_LEAST = 1024


def batch_tokens(target: Target) -> int:
    """Return how many tokens, padding included, a batch of a target may have by the memory that is free now.

    A token costs a key and a value in every layer, and while a prompt is read its activations in one. Grouped heads
    make keys smaller than assumed here.
    """
    config = target.config.get_text_config()
    width, itemsize = int(config.hidden_size), target.dtype.itemsize
    inner = int(getattr(config, "intermediate_size", None) or 4 * width)
    bytes_per_token = itemsize * (2 * target.spec.num_layers * width + 12 * width + 4 * inner)
    return max(_LEAST, int(_free(target.device) * _SHARE) // bytes_per_token)


def _free(device: torch.device) -> int:
    """Return the bytes that can be allocated on a device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return _UNKNOWN


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that memory ran out, on a GPU or in the machine."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    # torch's allocator on a CPU raises a plain RuntimeError.
    return isinstance(error, RuntimeError) and any(
        words in str(error).lower() for words in ("out of memory", "not enough memory", "can't allocate memory")
    )
