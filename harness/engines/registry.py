"""The engines by name."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from harness.engines.base import Engine, Prober, Recorder, Sampler
from harness.errors import InputError
from harness.pair.pair import Pair

__all__ = ["ENGINES", "as_served", "find_engine", "find_prober", "find_recorder", "find_sampler", "split_engine"]

ENGINES = ("reference", "reference:replay", "reference:sequential", "reference:batched", "sglang", "server")


def split_engine(name: str, *, file: Path | None = None, key: str = "engine") -> tuple[str, str]:
    """Return an engine's name and mode.

    Args:
        name: The engine, such as `reference:batched`.
        file: Where the name was written, for the message.
        key: The key or option that it was given by.

    Raises:
        InputError: The engine is unknown.
    """
    if name not in ENGINES:
        raise InputError("no such engine", file=file, key=key, found=name, expected=" or ".join(ENGINES))
    base, _, mode = name.partition(":")
    return base, mode or ("replay" if base == "reference" else "")


def find_engine(name: str) -> Engine:
    """Return the engine called `name`.

    Raises:
        InputError: The engine is unknown.
    """
    base, mode = split_engine(name)
    # Imported here: torch and transformers take seconds, and only a run needs them.
    if base == "sglang":
        from harness.engines.sglang.engine import SglangEngine

        return SglangEngine()
    if base == "server":
        from harness.engines.server.engine import ServerEngine

        return ServerEngine()
    from harness.engines.reference.engine import ReferenceEngine

    return ReferenceEngine(mode)


def as_served(pair: Pair, stated: Collection[str] = ()) -> Pair:
    """Return a pair as its engine serves it: by the engine's own reading of the draft's config, if it has one.

    Args:
        pair: As read from its files; returned unchanged if the reference engine serves it.
        stated: Which of `device` and `dtype` were asked for; a server that has another is refused.

    Raises:
        InputError: The engine is not installed or not there, or is another than the one that the pair is served by.
        EngineError: A server fails.
    """
    base, _ = split_engine(pair.settings.engine.name)
    if base == "sglang":
        from harness.engines.sglang.installed import require_installed

        return pair.served_as(f"sglang=={require_installed(pair)}")
    if base == "server":
        from harness.engines.server.engine import as_served as by_server

        return by_server(pair, stated)
    return pair


def find_recorder(name: str) -> Recorder:
    """Return the engine called `name`, by which a golden can be recorded.

    Raises:
        InputError: The engine is unknown, or a mode of the reference engine that knows its own rounds only.
    """
    base, mode = split_engine(name)
    if base == "sglang":
        from harness.engines.sglang.engine import SglangEngine

        return SglangEngine()
    if base == "server":
        from harness.engines.server.engine import ServerEngine

        return ServerEngine()
    if mode != "replay":
        raise InputError(
            "the reference engine records by replay, which knows every position",
            key="--engine",
            found=name,
            expected="reference, sglang or server",
        )
    from harness.engines.reference.engine import ReferenceEngine

    return ReferenceEngine(mode)


def find_sampler(name: str) -> Sampler | None:
    """Return the engine called `name` if it can be run again to see its states at chosen positions."""
    base, mode = split_engine(name)
    if base != "reference" or mode != "replay":
        return None
    from harness.engines.reference.engine import ReferenceEngine

    return ReferenceEngine(mode)


def find_prober(name: str) -> Prober:
    """Return the engine called `name`, whose pipeline can be looked into.

    Raises:
        InputError: The engine is unknown, or shows nothing of its pipeline.
    """
    base, mode = split_engine(name)
    if base == "server":
        raise InputError(
            "a running server shows nothing of its pipeline",
            key="engine.name or --engine",
            found=name,
            expected="reference or sglang",
            next_step="trace with --engine reference, or with --engine sglang on a machine that can run the pair",
        )
    if base == "sglang":
        from harness.engines.sglang.probe import SglangProber

        return SglangProber()
    from harness.engines.reference.engine import ReferenceEngine

    return ReferenceEngine(mode)
