"""The real target, where what it is made from is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from fixtures.smollm2.target import PACKAGE, is_made, make_target

__all__ = ["require_target"]


def require_target() -> Path:
    """Return the checkpoint's folder, made first where it can be; skip where its package is not installed."""
    if not is_made() and importlib.util.find_spec(PACKAGE.replace("-", "_")) is None:
        pytest.skip(f"{PACKAGE} is not installed: python -m tox -e real")
    return make_target()
