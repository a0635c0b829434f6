"""Where a target's weights are: on one device, or on several as accelerate places them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from harness.errors import InputError

__all__ = ["Placement", "held_tensor", "is_offloaded", "offloaded"]

_OFFLOADED = ("cpu", "disk")


@dataclass(frozen=True)
class Placement:
    """Where a target is loaded to.

    Attributes:
        device: Where it reads ids and returns logits, and where the draft is.
        device_map: `auto`, or a device for each module by name as accelerate reads it; all on `device` if `None`.
        file: The pair file that says so, for messages.
    """

    device: str = "cpu"
    device_map: str | Mapping[str, str | int] | None = None
    file: Path | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `from_pretrained` that load each weight straight to its device.

        Raises:
            InputError: A map is given, and accelerate is not installed.
        """
        known = importlib.util.find_spec("accelerate") is not None
        if self.device_map is None:
            # Without accelerate, the machine's memory must hold all weights before they are moved.
            straight = known and torch.device(self.device).type == "cuda"
            return {"device_map": {"": self.device}} if straight else {}
        if not known:
            raise self._error("accelerate is not installed", "no device_map, or accelerate", "pip install accelerate")
        wanted = self.device_map if isinstance(self.device_map, str) else dict(self.device_map)
        return {"device_map": wanted}

    def require_usable(self, model: nn.Module) -> None:
        """Refuse a model that was placed on other accelerators than the device that the pair's golden is named by.

        Raises:
            InputError: A module is on another kind of device, or on an accelerator though the device is a CPU.
        """
        mine = torch.device(self.device).type
        kinds = sorted({_kind(place) for place in _places(model).values()} - {*_OFFLOADED, mine})
        if kinds:
            raise self._error(
                f"the target's modules are on {', '.join(kinds)}, and the pair's device is {self.device}",
                f"modules on {mine}, cpu or disk",
                f'set engine.device = "{kinds[0]}", or name the devices of the modules',
            )

    def notes(self, model: nn.Module) -> list[str]:
        """Return sentences on a model that is not whole on its device."""
        places = _places(model)
        away = [name for name, place in places.items() if _kind(place) in _OFFLOADED and _kind(place) != self.device]
        if not away:
            return []
        named = ", ".join(name or "all" for name in away[:3]) + (", …" if len(away) > 3 else "")
        return [f"{len(away)} of {len(places)} modules of the target are offloaded ({named}): every forward loads them"]

    def _error(self, problem: str, expected: str, next_step: str) -> InputError:
        return InputError(
            problem,
            file=self.file,
            key="engine.device_map",
            found=str(self.device_map),
            expected=expected,
            next_step=next_step,
        )


def _places(model: nn.Module) -> dict[str, Any]:
    return dict(getattr(model, "hf_device_map", None) or {})


def _kind(place: object) -> str:
    """Return the type of a place in a device map: a device, its number on the accelerator, or `disk`."""
    if isinstance(place, int):
        return "cuda"
    return str(place).partition(":")[0]


def is_offloaded(module: nn.Module) -> bool:
    """Return whether a module's own parameters are loaded only while it runs."""
    hook = getattr(module, "_hf_hook", None)
    return any(getattr(one, "offload", False) for one in (hook, *getattr(hook, "hooks", ())))


def offloaded(model: nn.Module) -> Iterator[str]:
    """Yield the names of the parameters that are loaded only while their module runs."""
    for name, module in model.named_modules():
        if is_offloaded(module):
            for parameter, _ in module.named_parameters(prefix=name, recurse=False):
                yield parameter


def held_tensor(module: nn.Module, name: str) -> Tensor:
    """Return a parameter of a module, loaded for the purpose if it is offloaded.

    Args:
        module: A module of a loaded model.
        name: The parameter's name in it.
    """
    if not is_offloaded(module):
        return cast(Tensor, getattr(module, name))
    from accelerate.utils import align_module_device  # type: ignore[import-untyped]

    with align_module_device(module):
        return cast(Tensor, getattr(module, name)).clone()
