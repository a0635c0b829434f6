"""What runs inside SGLang's processes: hooks that write down each verify round, as lines of JSON.

SGLang calls `install` through the entry point `sglang.srt.plugins` in every process of every engine of an environment
that holds the harness. It does nothing unless the variable below is set, which only the harness does. Nothing but the
standard library is imported before that.

Lines written, by `event`:

- `capture`: the ids that SGLang resolved from the draft's config and what the target's setter made of them;
- `round`: of one verify round, a row for each request: its id, the tokens verified (the last one known first, then
  what was proposed), the target's own choice after each of them, and how many were accepted;
- `states`: a file of what the draft's `fc` received, while that is asked for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["FOLDER_VARIABLE", "STATES_SWITCH", "install"]

FOLDER_VARIABLE = "ACCEPTANCE_HARNESS_WATCH"
# States are written while a file of this name lies in the folder.
STATES_SWITCH = "write-states"

_SAMPLE = "sglang.srt.speculative.eagle_utils.eagle_sample"
_VERIFY = "sglang.kernels.ops.speculative.spec_tree.verify_tree_greedy_func"
_CONFIGURE = (
    "sglang.srt.model_executor.model_runner_components.attention_backend_setup.configure_aux_hidden_state_capture"
)
_DRAFTS = (
    "sglang.srt.models.llama_eagle3.LlamaModel.forward",
    "sglang.srt.models.kimi_k25_eagle3.Eagle3MLAModel.forward",
)


def install() -> None:
    """Register the hooks if the harness started this process."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    watch = _Watch(Path(folder))
    HookRegistry.register(_CONFIGURE, watch.configured, HookType.AFTER)
    HookRegistry.register(_SAMPLE, watch.sampling, HookType.AROUND)
    HookRegistry.register(_VERIFY, watch.verified, HookType.AFTER)
    for target in _DRAFTS:
        HookRegistry.register(target, watch.drafting, HookType.BEFORE)


class _Watch:
    """The hooks of one process.

    Args:
        folder: Where lines and states are written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._requests: list[str] = []
        self._written = 0

    def configured(self, result: None, **arguments: Any) -> None:
        """Write down what the target captures."""
        del result
        if not arguments["eagle_use_aux_hidden_state"]:
            return
        model = arguments["model"]
        parts = list(model.modules())
        ids = arguments["eagle_aux_hidden_state_layer_ids"]
        self._write(
            {
                "event": "capture",
                "model": type(model).__name__,
                "ids": None if ids is None else list(ids),
                "layers_to_capture": next(
                    (list(part.layers_to_capture) for part in parts if getattr(part, "layers_to_capture", None)), None
                ),
            }
        )

    def sampling(self, original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Remember whose tokens are about to be verified: the verification itself knows rows only."""
        batch = keywords["batch"] if "batch" in keywords else arguments[1]
        self._requests = [request.rid for request in batch.reqs]
        try:
            return original(*arguments, **keywords)
        finally:
            self._requests = []

    def verified(self, result: Any, **arguments: Any) -> None:
        """Write down a verify round.

        The counts are read before SGLang adds the bonus token to them, and copied: it does so in place.
        """
        del result
        rows = zip(
            self._requests,
            arguments["candidates"].tolist(),
            arguments["target_predict"].tolist(),
            arguments["accept_token_num"].tolist(),
            strict=True,
        )
        self._write({"event": "round", "rows": [list(row) for row in rows]})

    def drafting(
        self, _model: Any, input_ids: Any, positions: Any, forward_batch: Any, *_rest: Any, **_named: Any
    ) -> None:
        """Write down the target's states that the draft is given, while that is asked for."""
        if not (self._folder / STATES_SWITCH).exists() or _rank():
            # Every rank is given the same.
            return
        import safetensors.torch

        states = forward_batch.spec_info.hidden_states
        self._written += 1
        name = f"states-{os.getpid()}-{self._written}.safetensors"
        tensors = {"input_ids": input_ids, "positions": positions, "states": states}
        safetensors.torch.save_file(
            {key: tensor.detach().cpu().clone().contiguous() for key, tensor in tensors.items()}, self._folder / name
        )
        self._write({"event": "states", "file": name, "mode": forward_batch.forward_mode.name})

    def _write(self, line: dict[str, Any]) -> None:
        # Opened again each time, so that every line is in the file before SGLang answers.
        with (self._folder / f"watch-{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"rank": _rank()} | line) + "\n")


def _rank() -> int:
    """Return this process' rank among those that share the target's layers."""
    from sglang.srt.runtime_context import get_parallel

    return int(get_parallel().tp_rank)
