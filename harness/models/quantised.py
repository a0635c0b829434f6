"""Targets whose weights are stored in fewer bits: which are read, and how.

Those that are read are dequantised while they are loaded, into the dtype that the pair asks for. So a golden does not
depend on which kernels a machine has for them, and no kernel is fetched from a hub. It takes the memory of the dtype.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.errors import InputError

__all__ = ["dequantise", "quantisation"]

# Those that transformers dequantises exactly and that were tried: suites/unit/models/test_quantised.py.
_READ = ("fp8", "mxfp4")


def quantisation(config: Any) -> dict[str, Any] | None:
    """Return the quantisation that a checkpoint's config declares, or `None`.

    Args:
        config: A transformers config, or a draft's as a dictionary.
    """
    values = config if isinstance(config, dict) else vars(config)
    found = values.get("quantization_config") or values.get("compression_config")
    if found is None:
        return None
    return dict(found) if isinstance(found, dict) else {"quant_method": str(found)}


def dequantise(config: Any, file: Path) -> bool:
    """Have transformers dequantise a target while it loads it; return whether the target is quantised.

    Args:
        config: Its transformers config, changed in place.
        file: The config's file, for messages.

    Raises:
        InputError: It is quantised in a way that cannot be read exactly.
    """
    found = quantisation(config)
    if found is None:
        return False
    method = str(found.get("quant_method"))
    if method not in _READ:
        raise InputError(
            "the reference engine does not run targets that are quantised in this way",
            file=file,
            key="quantization_config.quant_method",
            found=method,
            expected=f"{' or '.join(_READ)}, or weights that are not quantised",
            next_step="measure it on the engine that serves it, --engine sglang or --endpoint, or name the checkpoint "
            "that it was made from",
        )
    config.quantization_config = found | {"dequantize": True}
    return True
