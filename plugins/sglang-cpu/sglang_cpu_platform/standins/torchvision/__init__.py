"""A FAKE torchvision, by sglang-cpu-platform: it can be imported, and each of its functions raises when called.

It is on the path only if torchvision is not installed. SGLang imports torchvision for the configs of vision models,
whichever model it serves.
"""

from __future__ import annotations

from torchvision import io, transforms

__all__ = ["io", "transforms"]

# transformers compares it with the version that it needs, and finds this one too old.
__version__ = "0.0.0+fake"
