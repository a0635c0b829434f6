"""A FAKE torchvision, of sglang-cpu-platform: it can be imported, and whatever is called in it raises.

It is on the path only where torchvision is not installed. SGLang imports torchvision for configs of vision models,
whichever model it serves.
"""

from __future__ import annotations

from torchvision import io, transforms

__all__ = ["io", "transforms"]

# transformers compares it with what it needs: nothing is found new enough.
__version__ = "0.0.0+fake"
