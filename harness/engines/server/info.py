"""What a server says about itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packaging.version import InvalidVersion, Version

from harness.engines.server.client import Client
from harness.errors import InputError

__all__ = ["HISTOGRAM_SINCE", "SglangInfo", "VllmInfo", "read_info"]

HISTOGRAM_SINCE = Version("0.5.12")
"""The first release whose `meta_info` has the histogram of accepted counts."""
# The first release read that checks token ids in `token_ids_logprob` before its model sees them. Of a prompt it checks
# none: an id past the vocabulary ends the whole server.
_CHECKS_IDS_SINCE = Version("0.5.23")


@dataclass(frozen=True)
class SglangInfo:
    """What an SGLang server says about itself.

    Attributes:
        endpoint: Its address.
        version: Its release.
        settings: Its arguments as it resolved them.
        model: What it says about its model.
    """

    endpoint: str
    version: Version
    settings: Mapping[str, Any]
    model: Mapping[str, Any]

    @property
    def device(self) -> str:
        """Where it runs: `cuda` or `cpu`."""
        return str(self.settings.get("device") or "cuda")

    @property
    def stream_interval(self) -> int:
        """Tokens that gather before a chunk is sent."""
        return int(self.settings.get("stream_interval") or 1)

    @property
    def checks_ids(self) -> bool:
        """Whether it is known to check ids without running the model on them."""
        return self.version >= _CHECKS_IDS_SINCE

    def described(self) -> dict[str, Any]:
        """Return what is recorded about it: nothing that could contain a key."""
        names = ("model_path", "served_model_name", "speculative_draft_model_path", "dtype", "quantization", "device")
        sizes = ("tp_size", "dp_size", "nnodes", "attention_backend", "disable_overlap_schedule", "disable_cuda_graph")
        speculative = (
            "speculative_algorithm",
            "speculative_num_steps",
            "speculative_eagle_topk",
            "speculative_num_draft_tokens",
        )
        known = {name: self.settings[name] for name in (*names, *speculative, *sizes) if name in self.settings}
        known |= {name: self.model[name] for name in ("architectures", "weight_version") if name in self.model}
        return {"endpoint": self.endpoint, "engine": "sglang", "version": str(self.version), **known}


@dataclass(frozen=True)
class VllmInfo:
    """What a vLLM server says about itself.

    Attributes:
        endpoint: Its address.
        version: Its release, as it writes it.
        model: The name that it serves its model under.
    """

    endpoint: str
    version: str
    model: str

    def described(self) -> dict[str, Any]:
        """Return what is recorded about it."""
        return {
            "endpoint": self.endpoint,
            "engine": "vllm",
            "version": self.version,
            "model_path": self.model,
        }


async def read_info(client: Client) -> SglangInfo | VllmInfo:
    """Ask a server what it is.

    Raises:
        InputError: It is neither SGLang nor vLLM, or wants another key.
        EngineError: It fails.
    """
    tried = []
    # The second is what releases call it that lack the first.
    for path in ("/server_info", "/get_server_info"):
        reply = await client.look(path)
        tried.append(f"GET {path}: {reply.status}")
        body = client.parse(reply.text, f"GET {path}") if reply.status == 200 else None
        if isinstance(body, dict) and "speculative_algorithm" in body:
            return await _sglang(client, body)
    reply = await client.look("/metrics")
    tried.append(f"GET /metrics: {reply.status}")
    if reply.status == 200 and re.search(r"^vllm:", reply.text, re.MULTILINE):
        return await _vllm(client)
    raise InputError(
        "neither SGLang nor vLLM answers here",
        file=client.endpoint,
        found=", ".join(tried),
        expected="SGLang's /server_info with its speculative arguments, or vLLM's /metrics",
        next_step="name the server itself, not a gateway or another service in front of it",
    )


async def _sglang(client: Client, body: dict[str, Any]) -> SglangInfo:
    text = str(body.get("version"))
    try:
        version = Version(text)
    except InvalidVersion:
        raise InputError(
            "the server does not say which release of SGLang it is",
            file=client.endpoint,
            key="version",
            found=text,
            expected=f"{HISTOGRAM_SINCE} or later",
        ) from None
    model: Any = {}
    for path in ("/model_info", "/get_model_info"):
        reply = await client.look(path)
        if reply.status == 200:
            model = client.parse(reply.text, f"GET {path}")
            break
    return SglangInfo(client.endpoint, version, body, model if isinstance(model, dict) else {})


async def _vllm(client: Client) -> VllmInfo:
    reply = await client.look("/version")
    told = client.parse(reply.text, "GET /version") if reply.status == 200 else {}
    version = str(told.get("version", "unknown")) if isinstance(told, dict) else "unknown"
    reply = await client.look("/v1/models")
    models = client.parse(reply.text, "GET /v1/models") if reply.status == 200 else {}
    try:
        return VllmInfo(client.endpoint, version, str(models["data"][0]["id"]))
    except (KeyError, IndexError, TypeError):
        raise InputError(
            "the vLLM server names no model",
            file=client.endpoint,
            key="GET /v1/models",
            found=reply.text,
            expected="a list of models",
        ) from None
