"""One prompt's way through the real SGLang, as its own processes see it."""

from __future__ import annotations

import safetensors.torch
import torch
from torch import Tensor

from harness.engines.base import Probe, Resolved, view_of
from harness.engines.sglang.arguments import server_arguments
from harness.engines.sglang.engine import cache_tokens, running_engine
from harness.engines.sglang.installed import require_installed
from harness.engines.sglang.launch import RunningEngine
from harness.engines.sglang.rounds import read_capture, read_rounds, read_state_files
from harness.engines.shared.process import Patience
from harness.engines.shared.sglang_target import GREEDY
from harness.errors import EngineError
from harness.pair.pair import Pair
from harness.pair.prompts import Prompt

__all__ = ["SglangProber"]

_REQUEST = "harness-probe"


class SglangProber:
    """Looks into the real SGLang while it decodes one verify round; see `harness.engines.base.Prober`.

    Args:
        patience: How long it may give no sign of life.
    """

    def __init__(self, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()

    def probe(self, pair: Pair, prompt: Prompt) -> Probe:
        """Run a prompt through one verify round.

        Raises:
            InputError: SGLang or the pair cannot be run as stated.
            EngineError: SGLang fails, or shows nothing.
        """
        require_installed(pair)
        tokens = cache_tokens([prompt], pair.limits)
        # Without CUDA graphs: a graph replays kernels, and never calls the draft that the hooks look at.
        looking = {"enable_return_hidden_states": True, "disable_cuda_graph": True}
        arguments = server_arguments(pair, running=1, tokens=tokens) | looking
        with running_engine(pair, arguments, self._patience) as engine:
            capture = read_capture(engine.watch)
            with engine.writing_states():
                # The prefill's token and one of a verify round.
                (result,) = engine.generate(
                    input_ids=[list(prompt.ids)],
                    rid=[_REQUEST],
                    sampling_params=GREEDY | {"max_new_tokens": 2},
                    return_hidden_states=True,
                )
            rounds = read_rounds(engine.watch).get(_REQUEST)
            received = _received(engine, len(prompt.ids))
        if not rounds:
            raise EngineError("SGLang output two tokens without a verify round: it does not speculate")
        given = torch.tensor(result["meta_info"]["hidden_states"][0])[None]
        width = pair.target.hidden_size
        return Probe(
            slots=tuple(view_of(slot) for slot in given.split(width, dim=-1)),
            concatenated=view_of(given),
            received=view_of(received),
            fused=None,
            proposals=rounds[0].proposed,
            predicted=rounds[0].predicted,
            accepted=rounds[0].accepted,
            resolved=Resolved(capture.model, capture.ids, capture.layers),
        )


def _received(engine: RunningEngine, length: int) -> Tensor:
    """Return the states [1, T, W] that the draft was given for the prompt."""
    for _mode, file in read_state_files(engine.watch):
        states = safetensors.torch.load_file(file)["states"]
        if states.shape[0] == length:
            return states[None]
    raise EngineError(f"SGLang's draft was never given the states of the prompt's {length} tokens")
