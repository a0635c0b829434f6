"""A fake `torchvision.transforms`, in which only the names of the interpolations are real."""

from __future__ import annotations

import enum

from torchvision.refusal import refusing
from torchvision.transforms import functional, v2

__all__ = ["InterpolationMode", "functional", "v2"]


class InterpolationMode(enum.Enum):
    """The interpolations by torchvision's names."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


__getattr__ = refusing(__name__)
