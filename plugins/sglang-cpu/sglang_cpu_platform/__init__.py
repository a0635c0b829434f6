"""SGLang on a CPU: a platform plugin that runs SGLang's own Triton kernels in Triton's interpreter.

SGLang is not imported here, so that a program that starts an engine can ask for the environment without it.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["KNOWN_VERSIONS", "NAME", "environment"]

# The value of SGLANG_PLATFORM, and the name of both entry points.
NAME = "cpu-interpreted"
# The SGLang releases that the platform was run with.
KNOWN_VERSIONS = ("0.5.23",)

_STANDINS = Path(__file__).parent / "standins"


def environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment in which an SGLang process runs on this platform.

    Args:
        base: The environment to add to; the process' own if it is `None`.
    """
    result = dict(os.environ if base is None else base)
    result |= {"SGLANG_PLATFORM": NAME, "TRITON_INTERPRET": "1", "TORCHDYNAMO_DISABLE": "1"}
    if result.get("SGLANG_PLUGINS"):
        # If it is set, SGLang loads the plugins in this list only.
        result["SGLANG_PLUGINS"] += f",{NAME}"
    if importlib.util.find_spec("torchvision") is None:
        # A variable, since an import hook would come too late: SGLang imports torchvision before it loads plugins.
        paths = (str(_STANDINS), result.get("PYTHONPATH", ""))
        result["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return result
