"""Targets whose weights are stored in fewer bits: which are read, and how.

Those that are read are dequantised while they are loaded, into the dtype that the pair asks for. So a golden does not
depend on which kernels a machine has for them, and no kernel is fetched from a hub. It takes the memory of the dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from harness.errors import InputError
from harness.models.checkpoint import Header, read_stored

__all__ = ["dequantise", "quantisation", "settle_dequantised"]

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


def settle_dequantised(model: nn.Module, folder: Path, headers: Mapping[str, Header], dtype: torch.dtype) -> None:
    """Compare a target that was dequantised with what the checkpoint's numbers stand for, and give it its dtype.

    Releases of transformers differ in how they dequantise, and in the dtype of what comes of it.

    Args:
        model: The target, loaded from a quantised checkpoint.
        folder: The checkpoint.
        headers: Those of its tensors. Tensors that transformers joins or renames are not compared.
        dtype: What the weights that were quantised are cast to.

    Raises:
        InputError: A weight has another value, or none of those that were quantised is found in the model.
    """
    import transformers

    compared, found = 0, None
    for name, parameter in model.named_parameters():
        if parameter.is_meta or not parameter.is_floating_point():
            continue
        parts = next((parts for parts in _parts(name) if all(part in headers for part in parts)), None)
        if parts is None:
            continue
        stored = read_stored({part: headers[part].file for part in parts})
        expected = _MEANING[len(parts) - 1 if parts[0] == name else 2](*(stored[part] for part in parts))
        # bfloat16 on the way, whatever the dtype is.
        ours = parameter.detach().cpu().float()
        if ours.shape != expected.shape or not torch.allclose(ours, expected, rtol=2**-7, atol=0):
            found = f"{name}, which has other values"
            break
        if len(parts) > 1:
            parameter.data = parameter.data.to(dtype)
            compared += 1
    if found is not None or not compared:
        raise InputError(
            f"transformers {transformers.__version__} does not dequantise this checkpoint exactly",
            file=folder,
            found=found or "no weight that could be compared",
            expected="in each weight the number times its scale",
            next_step="use the release that constraints/cpu.txt names, or the checkpoint that this one was made from",
        )


def _parts(name: str) -> tuple[tuple[str, ...], ...]:
    """Return the names of the tensors that a weight may be stored as, the surest first."""
    return (name, f"{name}_scale_inv"), (f"{name}_blocks", f"{name}_scales"), (name,)


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


_MEANING: tuple[Callable[..., Tensor], ...] = (lambda stored: stored.float(), _scaled, _of_blocks)
