"""A fake `torchvision.transforms.v2.functional`."""

from torchvision.refusal import refusing

__getattr__ = refusing(__name__)
