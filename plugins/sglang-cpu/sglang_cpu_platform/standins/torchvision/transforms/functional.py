"""A fake `torchvision.transforms.functional`."""

from torchvision.refusal import refusing

__getattr__ = refusing(__name__)
