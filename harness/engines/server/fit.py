"""Whether a pair can be measured on a server, by what the server says of itself."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import get_args

from harness.engines.server.client import Client
from harness.engines.server.info import HISTOGRAM_SINCE, SglangInfo, VllmInfo
from harness.engines.server.sampling import SENT, WITHOUT_EFFECT
from harness.engines.shared.sglang_settings import require_served_by, speculation_of
from harness.errors import InputError
from harness.files import read_json_object
from harness.pair.pair import Pair
from harness.pair.pairfile import Dtype

__all__ = ["dtype_of", "require_fit", "require_plain", "require_vllm_fit", "require_vocabulary"]

_RANGE = re.compile(r"valid range is \[0, (\d+)\)")
_DTYPES = {"half": "float16", "float": "float32"}


def require_fit(info: SglangInfo, pair: Pair) -> tuple[str, ...]:
    """Refuse a server on which the pair would not be measured as its file says.

    Returns:
        Notes for the report.

    Raises:
        InputError: It runs without speculation, with other settings, another target, or is too old to count.
    """
    if info.version < HISTOGRAM_SINCE:
        raise InputError(
            "the server's release gives no histogram of accepted counts",
            file=info.endpoint,
            key="version",
            found=str(info.version),
            expected=f"{HISTOGRAM_SINCE} or later",
        )
    require_served_by(pair, str(info.version), who=f"the server at {info.endpoint}")
    settings, expected = info.settings, speculation_of(pair)
    if not settings.get("speculative_algorithm"):
        raise InputError(
            "the server runs without speculation",
            file=info.endpoint,
            key="speculative_algorithm",
            found=settings.get("speculative_algorithm"),
            expected="EAGLE3",
            next_step="start it with --speculative-algorithm EAGLE3 and the pair's draft, or name another server",
        )
    for key, value in expected.items():
        # A release without an option does not do what the option is for.
        if settings.get(key, False if value is False else None) != value:
            raise InputError(
                "the server runs with another setting than the pair",
                file=info.endpoint,
                key=key,
                found=settings.get(key),
                expected=f"{value}, by {pair.steps_by}",
                next_step="start the server with the pair's settings, or give the pair file the server's",
            )
    for key, value in pair.settings.engine.args.items():
        if key in settings and settings[key] != value:
            raise InputError(
                "the server runs with another setting than the pair asks for",
                file=info.endpoint,
                key=key,
                found=settings[key],
                expected=f"{value}, by engine.args in {pair.file}",
                next_step="start the server with it, or leave it out of engine.args",
            )
    _require_sampling(info)
    _require_target(info, pair)
    return _told(info, pair)


def require_plain(info: SglangInfo | VllmInfo, pair: Pair) -> None:
    """Refuse a second server that cannot say what the target alone would choose.

    Raises:
        InputError: It is not SGLang, speculates, or runs another target.
    """
    if isinstance(info, VllmInfo) or info.settings.get("speculative_algorithm"):
        found = "vLLM" if isinstance(info, VllmInfo) else info.settings["speculative_algorithm"]
        raise InputError(
            "the plain endpoint must be an SGLang server without speculation",
            file=info.endpoint,
            key="engine.plain_endpoint or --plain-endpoint",
            found=found,
            expected="an SGLang server of the same target, started without --speculative-algorithm",
            next_step="name another server, or leave it out: then the speculating server's own target judges",
        )
    _require_sampling(info)
    _require_target(info, pair)


def _require_sampling(info: SglangInfo) -> None:
    preferred = info.model.get("preferred_sampling_params") or info.settings.get("preferred_sampling_params") or {}
    if isinstance(preferred, str):
        try:
            preferred = json.loads(preferred)
        except ValueError:
            preferred = {preferred: None}
    other = sorted(set(preferred) - SENT.keys() - WITHOUT_EFFECT)
    if other:
        raise InputError(
            "the server has a sampling parameter of its own, which would change its texts",
            file=info.endpoint,
            key="preferred_sampling_params",
            found=other[0],
            expected="none but " + ", ".join(sorted(SENT)),
            next_step="start it without --preferred-sampling-params",
        )


def _require_target(info: SglangInfo, pair: Pair) -> None:
    names = info.model.get("architectures")
    if isinstance(names, list) and names and names[0] != pair.target.architecture:
        raise InputError(
            "the server runs another target",
            file=info.endpoint,
            key="architectures",
            found=names[0],
            expected=f"{pair.target.architecture}, as {pair.target.path} has",
            next_step=_other_target(info),
        )


def _other_target(info: SglangInfo) -> str:
    model = info.settings.get("model_path")
    return f"its model is {model}; give the pair file that target, or name another server"


async def require_vocabulary(client: Client, info: SglangInfo, pair: Pair) -> None:
    """Refuse a server whose target has another vocabulary: a token id that it lacks would end it.

    It is asked for the log-probability of the first id past the pair's vocabulary, which it refuses by naming its own.

    Raises:
        InputError: It has another.
        EngineError: It fails.
    """
    if not info.checks_ids:
        return
    size = pair.target.vocab_size
    body = {
        "input_ids": [0],
        "sampling_params": SENT | {"max_new_tokens": 1},
        "return_logprob": True,
        "token_ids_logprob": [size],
    }
    status, answer = await client.ask("/generate", body, "the size of its vocabulary", allow=(400,))
    told = _RANGE.search(json.dumps(answer))
    found = "more" if status == 200 else int(told[1]) if told else None
    if found is None or found == size:
        return
    raise InputError(
        "the server's target has another vocabulary",
        file=info.endpoint,
        key="vocab_size",
        found=found,
        expected=f"{size}, as {pair.target.path} has",
        next_step=_other_target(info),
    )


def _told(info: SglangInfo, pair: Pair) -> tuple[str, ...]:
    """Return notes on models whose names differ from the pair's: over HTTP they are known by name only."""
    notes = []
    for what, key, ours in (
        ("target", "model_path", pair.settings.target),
        ("draft", "speculative_draft_model_path", pair.settings.draft),
    ):
        theirs = info.settings.get(key)
        if theirs and PurePosixPath(str(theirs)).name != PurePosixPath(ours).name:
            notes.append(
                f"the server's {what} is {theirs}, the pair file's {ours}: it is not known whether they are the same"
            )
    if info.settings.get("quantization"):
        notes.append(f"the server's target is quantised: {info.settings['quantization']}")
    return tuple(notes)


def dtype_of(info: SglangInfo, pair: Pair) -> str:
    """Return the dtype of a server; if it says `auto`, by SGLang's rule from the pair's target.

    Raises:
        InputError: Goldens are not kept for this dtype.
    """
    text = str(info.settings.get("dtype") or "auto")
    text = _DTYPES.get(text, text)
    if text == "auto":
        file = pair.target.path / "config.json"
        config = read_json_object(file, what="target's config", next_step="restore it")
        inner = config.get("text_config")
        parts = [inner, config] if isinstance(inner, dict) else [config]
        named = next((part[key] for part in parts for key in ("dtype", "torch_dtype") if part.get(key)), "float32")
        halved = "bfloat16" if str(config.get("model_type")).startswith("gemma") else "float16"
        text = halved if named == "float32" else str(named)
    if text not in get_args(Dtype):
        raise InputError(
            "unsupported server dtype",
            file=info.endpoint,
            key="dtype",
            found=text,
            expected=" or ".join(get_args(Dtype)),
        )
    return text


def require_vllm_fit(info: VllmInfo, pair: Pair) -> tuple[str, ...]:
    """Refuse a pair that vLLM does not serve, and return notes on what vLLM does not report about itself.

    Raises:
        InputError: The pair is served by another engine.
    """
    served_by = pair.settings.served_by
    if served_by not in (None, "vllm"):
        raise InputError(
            "the pair is served by another engine than the server is",
            file=pair.file,
            key="served_by",
            found=served_by,
            expected=f"vllm, or no such key: {info.endpoint} is vLLM {info.version}",
        )
    notes = [
        "vLLM's counters are sums over all requests: no prompt's own rounds are known, and the floor alone decides",
        "vLLM reports neither its method of speculation nor draft, dtype or device: the pair file's are assumed",
        "the round that ends a continuation is counted, which the golden keeps apart",
    ]
    if PurePosixPath(info.model).name != PurePosixPath(pair.settings.target).name:
        notes.append(f"the server's target is {info.model}, the pair file's {pair.settings.target}")
    return tuple(notes)
