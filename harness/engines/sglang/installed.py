"""Which SGLang is installed, found without importing it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import site
from collections.abc import Mapping
from pathlib import Path

from harness.engines.sglang.watch import FOLDER_VARIABLE
from harness.engines.shared.sglang_settings import require_served_by
from harness.errors import InputError
from harness.pair.pair import Pair

__all__ = ["cpu_environment", "engine_environment", "require_installed"]

_PLUGINS_GROUP, _PLUGIN = "sglang.srt.plugins", "acceptance-harness"
_PLUGINS_VARIABLE = "SGLANG_PLUGINS"
_CPU_PLATFORM = "sglang_cpu_platform"
# SGLang can be told to accept at random instead of verifying.
_SIMULATION = "SGLANG_SIMULATE_ACC_"


def require_installed(pair: Pair) -> str:
    """Return the installed SGLang's version, if the pair can be run on it as stated.

    Raises:
        InputError: SGLang or what it needs on this device is not installed, or the pair is served by another version.
    """
    try:
        version = importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        raise InputError(
            "SGLang is not installed in this environment",
            file=pair.file,
            key="engine.name or --engine",
            found="sglang",
            next_step="on a GPU: pip install sglang; on a CPU: pip install -r constraints/sglang-cpu.txt, then pip "
            "install --no-deps sglang==0.5.23 and pip install ./plugins/sglang-cpu, all from the harness' repository",
        ) from None
    require_served_by(pair, version, who="the one installed")
    if not importlib.metadata.entry_points(group=_PLUGINS_GROUP, name=_PLUGIN):
        raise InputError(
            "the installed acceptance-harness does not offer SGLang its hooks",
            found=f"no entry point {_PLUGIN!r} in the group {_PLUGINS_GROUP!r}",
            next_step="reinstall acceptance-harness in this environment",
        )
    if pair.settings.engine.device == "cpu":
        _require_cpu_platform(file=pair.file, key="engine.device or --device")
    return version


def _require_cpu_platform(*, file: Path | None = None, key: str | None = None) -> None:
    if importlib.util.find_spec(_CPU_PLATFORM) is None:
        raise InputError(
            "SGLang runs on a CPU only by a platform plugin, which is not installed",
            file=file,
            key=key,
            found="cpu",
            expected="cuda, or the package sglang-cpu-platform",
            next_step="pip install ./plugins/sglang-cpu from the harness' repository",
        )


def cpu_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment in which SGLang runs on a CPU.

    Args:
        base: The environment that it is added to; the process' own if `None`.

    Raises:
        InputError: The platform plugin for it is not installed.
    """
    _require_cpu_platform()
    added: dict[str, str] = importlib.import_module(_CPU_PLATFORM).environment(base)
    return added


def engine_environment(device: str, watch_folder: str) -> dict[str, str]:
    """Return the environment of an engine's processes.

    Args:
        device: `cpu` or `cuda`, with or without an index.
        watch_folder: Where the hooks write.

    Raises:
        InputError: A variable of the process' own environment makes SGLang pretend to verify.
    """
    pretending = sorted(name for name in os.environ if name.startswith(_SIMULATION))
    if pretending:
        raise InputError(
            "this variable makes SGLang accept at random instead of verifying",
            key=pretending[0],
            found=os.environ[pretending[0]],
            next_step="unset it",
        )
    environment = cpu_environment() if device == "cpu" else dict(os.environ)
    if environment.get(_PLUGINS_VARIABLE):
        # A list of the only plugins that SGLang loads.
        environment[_PLUGINS_VARIABLE] += f",{_PLUGIN}"
    # No process imports from the folder that it starts in, which may be an untrusted pair's: `python -m` would, and so
    # would each process that SGLang starts. A checkout that is not installed was imported from there.
    paths = [environment.get("PYTHONPATH", "")]
    if str(_ROOT) not in (*site.getsitepackages(), site.getusersitepackages()):
        paths.insert(0, str(_ROOT))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return environment | {FOLDER_VARIABLE: watch_folder, "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}


_ROOT = Path(__file__).resolve().parents[3]
