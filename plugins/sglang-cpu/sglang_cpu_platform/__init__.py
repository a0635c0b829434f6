"""SGLang on a CPU: a platform plugin that runs SGLang's own Triton kernels in Triton's interpreter.

Nothing of SGLang is imported here, so that whoever starts an engine can ask for its environment.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["KNOWN_VERSIONS", "NAME", "environment"]

# What SGLANG_PLATFORM must say, and the name of both entry points.
NAME = "cpu-interpreted"
# The SGLang releases that this was run with.
KNOWN_VERSIONS = ("0.5.23",)

_STANDINS = Path(__file__).parent / "standins"


def environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment in which an SGLang process runs on this platform.

    Args:
        base: What it is added to; the process' own environment where it is `None`.
    """
    result = dict(os.environ if base is None else base)
    result |= {"SGLANG_PLATFORM": NAME, "TRITON_INTERPRET": "1", "TORCHDYNAMO_DISABLE": "1"}
    if result.get("SGLANG_PLUGINS"):
        # A list of the only plugins that SGLang loads.
        result["SGLANG_PLUGINS"] += f",{NAME}"
    if importlib.util.find_spec("torchvision") is None:
        # A variable and no import hook: SGLang imports torchvision before it loads plugins, in every process.
        paths = (str(_STANDINS), result.get("PYTHONPATH", ""))
        result["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return result
