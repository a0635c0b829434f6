"""The class of a golden: the engine, device and dtype it was recorded on, which also name its file.

Rounding differs between devices and dtypes, so a pair has one golden for each class. A comparison within a class is
judged by the golden's own noise floor; a comparison across classes is reported as such and judged by the gate's margin.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, get_args

from harness.errors import InputError
from harness.pair.pairfile import Dtype

if TYPE_CHECKING:
    from harness.counts.run import Run
    from harness.pair.pair import Pair

__all__ = ["DEFAULT", "GoldenClass", "is_class_name"]

# No hyphen, which separates the parts, and no dot or slash: the class is part of a file name.
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class GoldenClass:
    """The class that a golden or a run belongs to; `str()` gives `engine-device-dtype`.

    Attributes:
        engine: The engine without its mode: every mode of the reference engine proposes the same tokens.
        device: The device type without its index: `cuda:0` and `cuda:1` share a golden.
        dtype: The dtype in which target and draft compute.
    """

    engine: str
    device: str
    dtype: str

    @classmethod
    def of_run(cls, run: Run) -> Self:
        """Return the class that a run belongs to."""
        return cls.of(run.engine, run.device, run.dtype)

    @classmethod
    def of_pair(cls, pair: Pair) -> Self:
        """Return the class that a run of the pair will belong to, by its engine settings."""
        engine = pair.settings.engine
        return cls.of(engine.name, engine.device, engine.dtype)

    @classmethod
    def parse(cls, text: str, *, key: str = "class") -> Self:
        """Read a class as a user writes it.

        Args:
            text: A class as it is written, for example `reference-cuda-bfloat16`.
            key: The option or key that the text was given by, for the message.

        Raises:
            InputError: The text does not have three parts, or the last one is not a dtype.
        """
        if not is_class_name(text):
            raise InputError(
                "this is not a class of goldens",
                key=key,
                found=text,
                expected=f"engine-device-dtype, such as {DEFAULT}, with the dtype {' or '.join(get_args(Dtype))}",
            )
        return cls(*text.split("-"))

    @classmethod
    def of(cls, engine: str, device: str, dtype: str) -> Self:
        """Return the class of an engine with its mode, a device with its index, and a dtype."""
        return cls(engine.partition(":")[0], device.partition(":")[0], dtype)

    @property
    def file(self) -> str:
        """The name of the golden's JSON in the pair's folder."""
        return f"{self}.json"

    def __str__(self) -> str:
        return f"{self.engine}-{self.device}-{self.dtype}"


def is_class_name(text: str) -> bool:
    """Return whether a text has the form of a class, which is also what tells a golden's file from other JSON."""
    parts = text.split("-")
    return len(parts) == 3 and parts[2] in get_args(Dtype) and all(_NAME.fullmatch(part) for part in parts)


# A run whose own class has not been recorded is compared with this one, which every machine can record.
DEFAULT = GoldenClass("reference", "cpu", "float32")
