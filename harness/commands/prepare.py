"""Preparing a pair for a command: the pair file, the command line's choices, and the engine's own reading of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

from harness.engines.registry import as_served, split_engine
from harness.errors import InputError
from harness.pair.outline import PairOutline
from harness.pair.pair import Pair, load_pair
from harness.pair.pairfile import Dtype

__all__ = ["prepare"]


def prepare(
    name: str | Path | PairOutline,
    *,
    engine: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    num_steps: int | None = None,
    endpoint: str | None = None,
    plain_endpoint: str | None = None,
) -> Pair:
    """Read a pair and apply the command line's choices, each of which replaces the pair file's value.

    Args:
        name: Path of a pair file, the name of a built-in pair, or a pair's outline that has been read.
        engine: An engine, with its mode if it has modes.
        dtype: The dtype in which target and draft compute.
        device: The device on which they run.
        num_steps: Chain length k.
        endpoint: Address of a running server; alone, it selects the engine `server`.
        plain_endpoint: Address of a server without speculation that judges the output.

    Raises:
        InputError: The pair or a choice cannot be used.
        EngineError: A server fails.
    """
    pair = load_pair(name)
    if num_steps is not None:
        pair = pair.with_steps(num_steps)
    if dtype is not None and dtype not in get_args(Dtype):
        raise InputError(
            "the dtype is not supported", key="--dtype", found=dtype, expected=" or ".join(get_args(Dtype))
        )
    if engine is None:
        split_engine(pair.settings.engine.name, file=pair.file, key="engine.name")
    else:
        split_engine(engine, key="--engine")
    asked = {key: value for key, value in {"dtype": dtype, "device": device}.items() if value is not None}
    # The pair file states device and dtype for its own engine: they bind a server only if that engine is a server.
    stated = set(asked)
    if pair.settings.engine.name == "server":
        stated |= {"dtype", "device"} & pair.settings.engine.model_fields_set
    pair = pair.with_engine(**asked, **_engine(pair, engine, endpoint, plain_endpoint))
    addresses = {"endpoint": endpoint, "plain_endpoint": plain_endpoint}
    named = frozenset(key for key, value in addresses.items() if value is not None)
    return as_served(replace(pair, user_named=pair.user_named | named), stated)


def _engine(pair: Pair, engine: str | None, endpoint: str | None, plain_endpoint: str | None) -> dict[str, str]:
    """Return the engine and its addresses as far as they were chosen; an address selects the engine `server`.

    Raises:
        InputError: An address was given to another engine, or a server was chosen without one.
    """
    chosen = {"name": engine, "endpoint": endpoint, "plain_endpoint": plain_endpoint}
    if endpoint is not None and engine is None:
        chosen["name"] = "server"
    name = chosen["name"] or pair.settings.engine.name
    for option, value in (("--endpoint", endpoint), ("--plain-endpoint", plain_endpoint)):
        if value is not None and name != "server":
            raise InputError(
                "the option is for running servers, and another engine was chosen",
                key=option,
                found=f"{value} with the engine {name}",
                expected="the engine server, or the command without this option",
            )
    if name == "server" and not (pair.settings.engine.endpoint if endpoint is None else endpoint):
        raise InputError(
            "the engine server needs the address of a running server",
            file=pair.file,
            key="engine.endpoint or --endpoint",
            found="none",
            expected="http://host:port",
        )
    return {key: value for key, value in chosen.items() if value is not None}
