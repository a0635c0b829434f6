"""A process that holds one real model class of SGLang and says what it captures for lists of layer ids.

    python -m harness.conformance.child FOLDER SECONDS

Reads one JSON object a line on standard input, `{"ids": [1, 3, 6]}` or `{"ids": null}`, and answers each with one on
the file descriptor that standard output had at the start; whatever SGLang prints goes to standard error. The first
line that it writes says that the model is loaded.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor, nn

from harness.conformance.cpu import run_on_cpu
from harness.models.capture import BoundaryCapture

__all__ = ["TOLERANCE", "main", "matching_boundary"]

TOLERANCE = 1e-4
"""How far a captured state may be from a boundary's, relative to its largest value: float32, two implementations."""

_TOKENS = 11


def matching_boundary(slot: Tensor, states: Sequence[Tensor]) -> int | None:
    """Return the boundary whose state a captured tensor is, `None` where it is none's.

    Args:
        slot: What was captured, [T, H].
        states: The state [T, H] at each boundary, 0 to N.
    """
    for boundary, state in enumerate(states):
        if float((slot - state).abs().max()) <= TOLERANCE * float(state.abs().max()):
            return boundary
    return None


@torch.no_grad()
def _states(folder: Path, tokens: Sequence[int]) -> list[Tensor]:
    """Return transformers' state [T, H] at each boundary of the same weights.

    Raises:
        ValueError: Two boundaries' states are too alike to tell which of them was captured.
    """
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    layers = model.config.get_text_config().num_hidden_layers
    ids = torch.tensor([list(tokens)])
    with BoundaryCapture(model, layers, range(layers + 1)) as captured:
        model(ids)
        states = [captured.state(boundary)[0] for boundary in range(layers + 1)]
    for boundary, state in enumerate(states):
        others = [matching_boundary(state + step, states) for step in (0.0, 10 * TOLERANCE * float(state.abs().max()))]
        if others[0] != boundary or others[1] is not None:
            raise ValueError(f"the states of boundary {boundary} and another are too alike to be told apart")
    return states


class _Engine:
    """SGLang's model runner with a target, without a scheduler."""

    def __init__(self, folder: Path) -> None:
        import sglang.benchmark.one_batch as bench
        from sglang.srt.layers.logits_processor import LogitsProcessor
        from sglang.srt.server_args import PortArgs, ServerArgs

        arguments = ServerArgs(
            model_path=str(folder),
            device="cpu",
            attention_backend="triton",
            sampling_backend="pytorch",
            grammar_backend="none",
            skip_tokenizer_init=True,
            dtype="float32",
            mem_fraction_static=0.1,
            max_total_tokens=512,
            max_running_requests=2,
            disable_cuda_graph=True,
            disable_overlap_schedule=True,
            triton_attention_num_kv_splits=1,
            enable_return_hidden_states=True,
        )
        arguments.resolve_once()
        bench.publish(arguments, role="scheduler", ranks=bench.SpawnRanks(world_rank=0, gpu_id=0))
        bench._init_process_global_configs()
        # The tiny target has no tokenizer, and none is needed: prompts are ids.
        bench.get_tokenizer = lambda *_args, **_kwargs: None
        self._bench = bench
        self._runner, _ = bench.load_model(arguments, PortArgs.init_new(arguments), 0, 0)
        self._model: Any = self._runner.torch_runner.model
        self._captured: Tensor | None = None
        for module in self._model.modules():
            if isinstance(module, LogitsProcessor):
                module.register_forward_hook(self._keep, with_kwargs=True)

    @property
    def name(self) -> str:
        """The class that SGLang chose."""
        return type(self._model).__name__

    def _keep(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        states = kwargs.get("aux_hidden_states", args[4] if len(args) > 4 else None)
        # What the logits processor hands on is what a draft receives; without captured states it is another thing.
        self._captured = None if states is None else output.hidden_states

    def captured(self, ids: Sequence[int] | None, tokens: Sequence[int]) -> Tensor:
        """Return what a prefill captures when asked for layer ids, concatenated: [T, slots * H]."""
        self._captured = None
        self._runner.clear()
        for module in self._model.modules():
            # A second call of a setter leaves the flags of the first.
            if hasattr(module, "_is_layer_to_capture"):
                module._is_layer_to_capture = False
        self._model.set_eagle3_layers_to_capture(None if ids is None else list(ids))
        requests = self._bench.prepare_synthetic_inputs_for_latency_test(1, len(tokens), [list(tokens)])
        self._runner.extend(requests)
        return self._taken()

    def _taken(self) -> Tensor:
        if self._captured is None:
            raise RuntimeError("the forward handed no captured state to the logits processor")
        return self._captured.clone()


def _answer(
    engine: _Engine, ids: Sequence[int] | None, tokens: Sequence[int], states: Sequence[Tensor]
) -> dict[str, Any]:
    try:
        captured = engine.captured(ids, tokens)
    except Exception as error:  # noqa: BLE001 - whatever SGLang raises is the answer
        return {"error": f"{type(error).__name__}: {error}"}
    slots = captured.split(states[0].shape[-1], dim=-1)
    return {"boundaries": [matching_boundary(slot, states) for slot in slots]}


def main(folder: Path, seconds: int) -> None:
    """Load the target in `folder` and answer until standard input ends, or for `seconds`."""
    # Whoever started this may be killed: nothing stays behind.
    signal.alarm(seconds)
    answers: IO[str] = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    run_on_cpu()
    tokens = torch.randint(3, 60, (_TOKENS,), generator=torch.Generator().manual_seed(0)).tolist()
    states = _states(folder, tokens)
    engine = _Engine(folder)
    print(json.dumps({"class": engine.name}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(_answer(engine, json.loads(line)["ids"], tokens, states)), file=answers, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
