"""Functions that raise, in place of everything that the fake does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["refusing"]


def refusing(module: str) -> Callable[[str], Any]:
    """Return a module's `__getattr__`, for which every public name is a function that raises."""

    def getattribute(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")

        def refuse(*_arguments: object, **_keywords: object) -> NoReturn:
            raise RuntimeError(
                f"{module}.{name} was called, but torchvision is not installed: this is the fake of sglang-cpu-platform"
            )

        return refuse

    return getattribute
