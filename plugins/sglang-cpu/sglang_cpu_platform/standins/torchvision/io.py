"""A fake `torchvision.io`."""

from torchvision.refusal import refusing

__getattr__ = refusing(__name__)
