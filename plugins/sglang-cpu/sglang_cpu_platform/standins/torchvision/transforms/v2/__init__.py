"""A fake `torchvision.transforms.v2`."""

from torchvision.refusal import refusing
from torchvision.transforms.v2 import functional

__all__ = ["functional"]

__getattr__ = refusing(__name__)
