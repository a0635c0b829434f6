"""Ways of running that only CUDA has, each with a substitute on a CPU, and one step of a pair to run in them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from harness.engines.reference.draft_cache import DraftCache
from harness.engines.reference.sequential import propose
from harness.models.draft import Eagle3Draft
from harness.models.target import Target

__all__ = ["PairStep", "Recorded", "held_bytes", "on_streams"]

_Result = TypeVar("_Result")
# Long enough that the work of every stream is queued before the first begins.
_CYCLES = 20_000_000


class PairStep:
    """A target's forward with capture, and the draft's first chain from it: all on the device, nothing read back.

    Args:
        target: Captured while the step is entered as a context manager.
        draft: Reads the target's states.
        boundaries: In the order of concatenation.
        steps: Chain length k.
        length: Tokens of a prompt.
    """

    def __init__(
        self, target: Target, draft: Eagle3Draft, boundaries: tuple[int, ...], *, steps: int, length: int
    ) -> None:
        self._target, self._draft, self._steps = target, draft, steps
        self._capture = target.capture(boundaries)
        self._cache = DraftCache(draft, 1, length + steps)

    def __enter__(self) -> PairStep:
        self._capture.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._capture.__exit__(None, None, None)

    def forward(self, ids: Tensor) -> tuple[Tensor, ...]:
        """Run the target.

        Args:
            ids: int64 [1, T].

        Returns:
            Its logits [1, T, vocab] and the concatenated states [1, T, W].
        """
        # Not `Target.forward`, which looks for NaN and reads the answer back.
        logits = self._target.model(input_ids=ids, use_cache=False).logits
        return logits, self._capture.concatenated()

    def chain(self, ids: Tensor) -> tuple[Tensor, ...]:
        """Run target and draft.

        Args:
            ids: int64 [1, T].

        Returns:
            Logits, states, and the chain proposed after the prompt, int64 [1, k].
        """
        logits, states = self.forward(ids)
        following = torch.cat((ids[:, 1:], logits[:, -1:].argmax(-1)), dim=1)
        return logits, states, propose(self._draft, self._cache, following, states, 0, self._steps).chain


class Recorded:
    """A function of token ids that is recorded once as a CUDA graph and replayed; on a CPU it is called again.

    Args:
        function: From ids to tensors.
        example: Ids to record it with, of the shape and on the device of all later ones.
    """

    def __init__(self, function: Callable[[Tensor], tuple[Tensor, ...]], example: Tensor) -> None:
        self._function, self._ids = function, example.clone()
        self._graph: torch.cuda.CUDAGraph | None = None
        self._outputs: tuple[Tensor, ...] = ()
        if example.is_cuda:
            self._record()

    def _record(self) -> None:
        # torch asks for some runs on a side stream first, in which libraries allocate what they keep.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self._function(self._ids)
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._outputs = self._function(self._ids)

    def __call__(self, ids: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs for other ids of the same shape."""
        self._ids.copy_(ids)
        if self._graph is None:
            self._outputs = self._function(self._ids)
        else:
            self._graph.replay()
        return tuple(output.clone() for output in self._outputs)


def on_streams(device: str, functions: Sequence[Callable[[], _Result]]) -> list[_Result]:
    """Run functions at once, each on a CUDA stream of its own; on a CPU one after the other."""
    if device != "cuda":
        return [function() for function in functions]
    results = []
    streams = [torch.cuda.Stream() for _ in functions]
    for stream, function in zip(streams, functions, strict=True):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(_CYCLES)
            results.append(function())
    torch.cuda.synchronize()
    return results


def held_bytes(device: str) -> int:
    """Return the bytes that tensors take on a device after garbage collection."""
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()
    # By the type itself, since `isinstance` of some of torch's objects warns.
    tensors = [thing for thing in gc.get_objects() if issubclass(type(thing), Tensor) and thing.device.type == "cpu"]
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())
