"""From a pair file to the keyword arguments of SGLang's `ServerArgs`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.engines.sglang.allowed import require_allowed
from harness.engines.shared.sglang_settings import UNCOUNTABLE, speculative_settings
from harness.errors import InputError
from harness.pair.pair import Pair

__all__ = ["CPU", "MODELS", "plain_arguments", "server_arguments"]

MODELS = ("model_path", "speculative_draft_model_path")
"""The arguments that name checkpoints."""

# What a CPU needs; SGLang's own choices are for CUDA, or need packages that only its CUDA installation has.
CPU: dict[str, Any] = {
    "attention_backend": "triton",
    "disable_cuda_graph": True,
    "disable_overlap_schedule": True,
    "grammar_backend": "none",
    "mem_fraction_static": 0.1,
    "sampling_backend": "pytorch",
    "triton_attention_num_kv_splits": 1,
}


def server_arguments(pair: Pair, *, running: int, tokens: int) -> dict[str, Any]:
    """Return the arguments with which SGLang serves a pair.

    Args:
        pair: The pair; `engine.args` of its file are passed on.
        running: Requests that run at once.
        tokens: Tokens that these hold in the cache at most.

    Raises:
        InputError: `engine.args` contradict what else the pair file says, make the counters mean something else, or may
            not be set by a pair file.
    """
    speculative = {"speculative_draft_model_path": str(pair.draft.path), **speculative_settings(pair)}
    return _merge(pair, speculative, running, tokens)


def plain_arguments(pair: Pair, *, running: int, tokens: int) -> dict[str, Any]:
    """Return the arguments with which SGLang decodes the target of a pair without speculation."""
    return _merge(pair, {}, running, tokens)


def _merge(pair: Pair, speculative: Mapping[str, Any], running: int, tokens: int) -> dict[str, Any]:
    engine = pair.settings.engine
    device, _, index = engine.device.partition(":")
    fixed = {
        "model_path": str(pair.target.path),
        "device": device,
        "dtype": engine.dtype,
        # Prompts are token ids, and so are continuations.
        "skip_tokenizer_init": True,
        **speculative,
    }
    if index:
        fixed["base_gpu_id"] = int(index)
    for key, value in engine.args.items():
        expected = (fixed | UNCOUNTABLE).get(key, value)
        if value != expected:
            what = "would make SGLang's counters mean something else" if key in UNCOUNTABLE else "contradicts the pair"
            raise InputError(
                f"the engine argument {what}",
                file=pair.file,
                key=f"engine.args.{key}",
                found=value,
                expected=expected,
                next_step="leave it out; target, draft, decode and engine say it already",
            )
    require_allowed({key: value for key, value in engine.args.items() if key not in fixed | UNCOUNTABLE}, pair.file)
    defaults = {"log_level": "info", "random_seed": 0}
    if fixed["device"] == "cpu":
        defaults |= CPU | {"max_running_requests": running, "max_total_tokens": tokens}
    return defaults | engine.args | fixed
