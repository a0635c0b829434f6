"""Makes SGLang run on the CPU in this process: environment, platform, and a stand-in for one package.

For a process of the harness' own that runs nothing else. Must be called before anything of SGLang is imported.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import types

__all__ = ["run_on_cpu"]

_STAND_INS = ("", ".io", ".transforms", ".transforms.functional", ".transforms.v2", ".transforms.v2.functional")


def run_on_cpu() -> None:
    """Choose the CPU: Triton's kernels run in its interpreter, and SGLang takes them for a platform's own."""
    os.environ |= {
        "CUDA_VISIBLE_DEVICES": "",
        "TRITON_INTERPRET": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        # Nothing is fetched, whatever a config names.
        "HF_HUB_OFFLINE": "1",
    }
    if importlib.util.find_spec("torchvision") is None:
        _stand_in_for_torchvision()
    import sglang.srt.platforms as platforms
    from sglang.srt.platforms.cpu import CpuDeviceMixin
    from sglang.srt.platforms.device_mixin import PlatformEnum
    from sglang.srt.platforms.interface import PlatformCapabilities, SRTPlatform

    class InterpretedPlatform(CpuDeviceMixin, SRTPlatform):  # type: ignore[misc]
        """A CPU on which Triton's kernels run, which SGLang's own CPU platform says they do not."""

        _enum = PlatformEnum.OOT
        capabilities = PlatformCapabilities(supports_triton=True)

        def get_default_attention_backend(self) -> str:
            return "triton"

        def get_compile_backend(self, mode: str | None = None) -> str:  # noqa: ARG002 - SGLang's signature
            return "eager"

    # Entry points are for platforms that are installed; this one lives and dies with its process.
    platforms._current_platform = InterpretedPlatform()


def _stand_in_for_torchvision() -> None:
    """Put modules in torchvision's place that can be imported and do nothing: a config of SGLang imports it.

    transformers is asked for it first, so that it keeps knowing that there is none.
    """
    from transformers.utils.import_utils import is_torchvision_available

    assert not is_torchvision_available()
    for ending in _STAND_INS:
        name = f"torchvision{ending}"
        module = types.ModuleType(name, "Stand-in: torchvision is not installed.")
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__path__ = []
        module.__getattr__ = _missing(name)  # type: ignore[method-assign]
        sys.modules[name] = module
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], own, module)


def _missing(module: str) -> types.FunctionType:
    def answer(name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)

        class Missing:
            """Stand-in for something of torchvision: may be named in a signature, and never used."""

            BICUBIC = BILINEAR = NEAREST = LANCZOS = None

            def __init__(self, *_args: object, **_kwargs: object) -> None:
                raise RuntimeError(f"torchvision is not installed, and {module}.{name} was called")

        return Missing

    return answer  # type: ignore[return-value]
