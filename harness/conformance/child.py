"""A process that loads one real model class of SGLang and reports the states it captures for lists of layer ids.

    python -m harness.conformance.child ARCHITECTURE LAYERS FOLDER SECONDS

Reads one JSON object per line on standard input, `{"ids": [1, 3, 6]}` or `{"ids": null}`, and answers each with one on
the file descriptor that standard output had at the start; everything that SGLang prints goes to standard error. The
first line that it writes says that the model is loaded, or why not.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from torch import Tensor, nn

from harness.conformance.states import STATE_TOLERANCE, asked_tokens, boundary_states, distance, matching_boundary
from harness.conformance.targets import write_target
from harness.engines.sglang.arguments import CPU

__all__ = ["main"]


class _Engine:
    """SGLang's model runner with a target, without a scheduler."""

    def __init__(self, folder: Path) -> None:
        import sglang.benchmark.one_batch as bench
        from sglang.srt.layers.logits_processor import LogitsProcessor
        from sglang.srt.plugins import load_plugins
        from sglang.srt.server_args import PortArgs, ServerArgs

        # The CPU platform's corrections to SGLang. Its own entry points load them, and a benchmark's functions do not.
        load_plugins()
        arguments = ServerArgs(
            **CPU,
            model_path=str(folder),
            device="cpu",
            skip_tokenizer_init=True,
            dtype="float32",
            max_total_tokens=512,
            max_running_requests=2,
            enable_return_hidden_states=True,
        )
        arguments.resolve_once()
        bench.publish(arguments, role="scheduler", ranks=bench.SpawnRanks(world_rank=0, gpu_id=0))
        bench._init_process_global_configs()
        # The tiny target does not have a tokenizer, and prompts are ids.
        bench.get_tokenizer = lambda *_args, **_kwargs: None
        self._bench = bench
        self._runner, _ = bench.load_model(arguments, PortArgs.init_new(arguments), 0, 0)
        self._model: Any = self._runner.torch_runner.model
        self._captured: Tensor | None = None
        self._last: Tensor | None = None
        for module in self._model.modules():
            if isinstance(module, LogitsProcessor):
                module.register_forward_hook(self._keep, with_kwargs=True)

    @property
    def name(self) -> str:
        """The class that SGLang chose."""
        return type(self._model).__name__

    def _keep(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        states = kwargs.get("aux_hidden_states", args[4] if len(args) > 4 else None)
        # A draft receives the hidden states that the logits processor passes on: the captured states if there are any,
        # else the last state.
        self._captured, self._last = (None, output.hidden_states) if states is None else (output.hidden_states, None)

    def _prefill(self, tokens: Sequence[int]) -> None:
        self._captured = self._last = None
        self._runner.clear()
        self._runner.extend(self._bench.prepare_synthetic_inputs_for_latency_test(1, len(tokens), [list(tokens)]))

    def last(self, tokens: Sequence[int]) -> Tensor:
        """Return the state [T, H] after the final norm; to be called before any capture is requested."""
        self._prefill(tokens)
        assert self._last is not None
        return self._last

    def captured(self, ids: Sequence[int] | None, tokens: Sequence[int]) -> Tensor:
        """Return the states that a prefill captures for layer ids, concatenated: [T, slots * H]."""
        for module in self._model.modules():
            # A setter does not clear the flags that an earlier call has set.
            if hasattr(module, "_is_layer_to_capture"):
                module._is_layer_to_capture = False
        self._model.set_eagle3_layers_to_capture(None if ids is None else list(ids))
        self._prefill(tokens)
        if self._captured is None:
            raise RuntimeError("the forward did not pass captured states to the logits processor")
        return self._captured.clone()


def _answer(
    engine: _Engine, ids: Sequence[int] | None, tokens: Sequence[int], states: Sequence[Tensor]
) -> dict[str, Any]:
    try:
        captured = engine.captured(ids, tokens)
    except Exception as error:  # noqa: BLE001 - whatever SGLang raises is the answer
        return {"error": _told(error)}
    slots = captured.split(states[0].shape[-1], dim=-1)
    return {"boundaries": [matching_boundary(slot, states) for slot in slots]}


def _told(error: Exception) -> str:
    """Return an error's name and message, or the line that raised it if it has no message, such as a bare assertion."""
    line = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {str(error) or f'{Path(line.filename).name}, line {line.lineno}: {line.line}'}"


def _load(architecture: str, num_layers: int, folder: Path, tokens: Sequence[int]) -> tuple[_Engine, list[Tensor]]:
    """Return the class, loaded with a target that is written to `folder`, and transformers' states to compare with.

    Raises:
        ValueError: Even without any capture the class and transformers compute different states.
    """
    write_target(architecture, folder, num_layers)
    states, last = boundary_states(folder, tokens)
    engine = _Engine(folder)
    off = distance(engine.last(tokens), last)
    if not off <= STATE_TOLERANCE:
        raise ValueError(
            f"without any capture its last state is {off:.1e} from transformers', relative to the largest value: "
            "the tiny target is not the same model in both, so captured states cannot be compared"
        )
    return engine, states


def main(architecture: str, num_layers: int, folder: Path, seconds: int) -> None:
    """Write a target to `folder`, load it and answer until standard input ends, or for `seconds`."""
    # The process that started this may be killed: this one then ends by itself.
    signal.alarm(seconds)
    answers: IO[str] = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    tokens = asked_tokens()
    try:
        engine, states = _load(architecture, num_layers, folder, tokens)
    except Exception as error:  # noqa: BLE001 - whatever keeps the class from running is the reason that is reported
        traceback.print_exc()
        print(json.dumps({"failed": _told(error)}), file=answers, flush=True)
        return
    print(json.dumps({"class": engine.name}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(_answer(engine, json.loads(line)["ids"], tokens, states)), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
