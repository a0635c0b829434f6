"""The platform class."""

from __future__ import annotations

from collections.abc import Callable

import torch
from sglang.srt.platforms.cpu import CpuDeviceMixin
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import PlatformCapabilities, SRTPlatform

__all__ = ["InterpretedCpuPlatform"]

_ALGORITHMS = frozenset({"EAGLE", "EAGLE3"})
_BACKEND = "triton"


class InterpretedCpuPlatform(CpuDeviceMixin, SRTPlatform):
    """A CPU that runs Triton kernels in Triton's interpreter."""

    # Out of tree rather than CPU: SGLang's own CPU paths call compiled kernels that only its CPU build has.
    _enum = PlatformEnum.OOT
    capabilities = PlatformCapabilities(supports_triton=True)

    def get_default_attention_backend(self) -> str:
        """Return the attention backend."""
        return _BACKEND

    def get_default_speculative_draft_attention_backend(self, algorithm: str) -> str:
        """Return the draft's attention backend."""
        del algorithm
        return _BACKEND

    def supports_speculative_algorithm(self, algorithm: str) -> bool:
        """Whether the algorithm was tried on this platform."""
        return algorithm in _ALGORITHMS

    def supports_speculative_draft_attention_backend(self, algorithm: str, backend: str) -> bool:
        """Whether the draft can use the backend."""
        return algorithm in _ALGORITHMS and backend == _BACKEND

    def get_compile_backend(self, mode: str | None = None) -> str:
        """Return the backend of `torch.compile` that compiles nothing."""
        del mode
        return "eager"

    def get_speculative_cache_locs_fn(self) -> Callable[..., torch.Tensor]:
        """Return the function that gathers the cache locations of the tokens to verify."""
        return _cache_locations


def _cache_locations(
    *,
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    **_sizes: object,
) -> torch.Tensor:
    """Return each request's slots from its start to its end, one after the other.

    Args:
        req_pool_indices: [B]: each request's row.
        req_to_token: [rows, longest]: the slots of each row's tokens.
        start_offset: [B]: the first token.
        end_offset: [B]: one past the last.
        **_sizes: Batch size, tokens per request and device, which the tensors above imply.

    Returns:
        int64 [sum of the lengths].
    """
    spans = zip(req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=True)
    return torch.cat([req_to_token[row, start:end] for row, start, end in spans]).to(torch.int64)
