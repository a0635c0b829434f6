"""The engines by name."""

from __future__ import annotations

from pathlib import Path

from harness.engines.base import Engine, Prober, Recorder
from harness.errors import InputError
from harness.pair.pair import Pair

__all__ = ["ENGINES", "find_engine", "find_prober", "find_recorder", "serving_convention", "split_engine"]

ENGINES = ("reference", "reference:replay", "reference:sequential", "reference:batched", "sglang")


def split_engine(name: str, *, file: Path | None = None, key: str = "engine") -> tuple[str, str]:
    """Return an engine's name and mode.

    Args:
        name: The engine, as `reference:batched`.
        file: Where the name was written, for the message.
        key: The key or option that it was given by.

    Raises:
        InputError: There is no such engine.
    """
    if name not in ENGINES:
        raise InputError("no such engine", file=file, key=key, found=name, expected=" or ".join(ENGINES))
    base, _, mode = name.partition(":")
    return base, mode or ("replay" if base == "reference" else "")


def find_engine(name: str) -> Engine:
    """Return the engine called `name`.

    Raises:
        InputError: There is no such engine.
    """
    base, mode = split_engine(name)
    # Imported here: torch and transformers take seconds, and only a run needs them.
    if base == "sglang":
        from harness.engines.sglang.engine import SglangEngine

        return SglangEngine()
    from harness.engines.reference.engine import ReferenceEngine

    return ReferenceEngine(mode)


def serving_convention(pair: Pair) -> str | None:
    """Return whose reading of a draft's config the pair's engine makes; `None` where that is for the pair to say.

    Raises:
        InputError: The engine is not installed, or is another than the one that the pair is served by.
    """
    if split_engine(pair.settings.engine.name)[0] != "sglang":
        return None
    from harness.engines.sglang.installed import require_installed

    return f"sglang=={require_installed(pair)}"


def find_recorder(name: str) -> Recorder:
    """Return the engine called `name`, by which a golden can be recorded.

    Raises:
        InputError: There is no such engine, or it does not know every position.
    """
    _, mode = split_engine(name)
    if mode != "replay":
        raise InputError(
            "a golden is recorded by replay, which knows every position",
            key="--engine",
            found=name,
            expected="reference",
        )
    from harness.engines.reference.engine import ReferenceEngine

    return ReferenceEngine(mode)


def find_prober(name: str) -> Prober:
    """Return the engine called `name`, whose pipeline can be looked into.

    Raises:
        InputError: There is no such engine.
    """
    base, mode = split_engine(name)
    if base == "sglang":
        from harness.engines.sglang.probe import SglangProber

        return SglangProber()
    from harness.engines.reference.engine import ReferenceEngine

    return ReferenceEngine(mode)
