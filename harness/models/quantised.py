"""Targets whose weights are stored in fewer bits: which are read, and how.

Those that are read are dequantised while they are loaded, into the dtype that the pair asks for. So a golden does not
depend on which kernels a machine has for them, and no kernel is fetched from a hub. It takes the memory of the dtype.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from harness.errors import InputError
from harness.models.checkpoint import read_stored

__all__ = ["dequantise", "quantisation", "require_dequantised"]

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


def require_dequantised(model: nn.Module, folder: Path, names: Collection[str]) -> None:
    """Compare the first and the last weight that was dequantised with what the checkpoint's numbers stand for.

    Releases of transformers differ in how they dequantise: 5.0 passes the scales over, without a word.

    Args:
        model: The target, loaded from a quantised checkpoint.
        folder: The checkpoint.
        names: The names of its tensors.

    Raises:
        InputError: A weight has another value, or none of those that were quantised is found in the model.
    """
    import transformers

    held = dict(model.named_parameters())
    scaled = [(name, f"{name}_scale_inv", name) for name in names if f"{name}_scale_inv" in names]
    blocks = [(f"{name}_blocks", f"{name}_scales", name) for name in held if f"{name}_blocks" in names]
    known = sorted(one for one in (*scaled, *blocks) if one[2] in held and not held[one[2]].is_meta)
    found = "none of them" if not known else None
    for numbers, scales, name in (known[:1] + known[-1:]) if known else ():
        stored = read_stored(folder, (numbers, scales))
        of = _scaled if numbers == name else _of_blocks
        expected, ours = of(stored[numbers], stored[scales]), held[name].detach().cpu()
        # bfloat16 on the way, whatever the dtype is.
        if ours.shape != expected.shape or not torch.allclose(ours.float(), expected, rtol=2**-7, atol=0):
            found = f"{name}, which has other values"
            break
    if found is not None:
        raise InputError(
            f"transformers {transformers.__version__} does not dequantise this checkpoint exactly",
            file=folder,
            found=found,
            expected="in each weight the number times its scale",
            next_step="use the release that constraints/cpu.txt names, or the checkpoint that this one was made from",
        )


def _scaled(numbers: Tensor, scales: Tensor) -> Tensor:
    """Return numbers [O, I] times their scales: one for all, or one for each block of equal size."""
    if scales.numel() > 1:
        for dim in (0, 1):
            size = -(-numbers.shape[dim] // scales.shape[dim])
            scales = scales.repeat_interleave(size, dim).narrow(dim, 0, numbers.shape[dim])
    return numbers.float() * scales.float()


# The values of a number of four bits, without its sign (OCP Microscaling Formats, 1.0, section 5.3.3).
_FOUR_BITS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def _of_blocks(blocks: Tensor, scales: Tensor) -> Tensor:
    """Return MXFP4's experts [E, I, O] from blocks [E, O, I / 32, 16] of two numbers each and their exponents."""
    values = torch.tensor([*_FOUR_BITS, *(-value for value in _FOUR_BITS)])
    pairs = torch.stack((blocks & 15, blocks >> 4), dim=-1).flatten(-2)
    numbers = values[pairs.long()] * torch.exp2(scales.float() - 127)[..., None]
    return numbers.flatten(-2).transpose(1, 2)
