"""Runs whole engines, from scheduler to verification, with a tiny pair of a class, and reads the input of `fc`."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from harness.commands.prepare import prepare
from harness.conformance.asked import NUM_LAYERS, AskedIds
from harness.conformance.states import asked_tokens, boundary_states, matching_boundary
from harness.conformance.targets import write_target
from harness.engines.sglang.arguments import server_arguments
from harness.engines.sglang.engine import decode, running_engine
from harness.engines.sglang.rounds import read_state_files
from harness.engines.shared.process import Patience
from harness.errors import EngineError, HarnessError, one_line
from harness.facts.keys import EAGLE_SECTION, IDS_KEY
from harness.facts.reading.setters import CaptureOutcome
from harness.models.draft_contract import expected_tensors
from harness.models.tiny import TINY_SIZES
from harness.pair.draft_spec import read_draft_spec
from harness.pair.pair import load_prompts

__all__ = ["run_whole"]

_PATIENCE = Patience(start=240.0, silence=120.0)
_PAIR = """
name = "conformance"
target = "target"
draft = "draft"
prompts = "prompts.jsonl"
chat_template = "none"
trained_as = "eagle"
[decode]
num_steps = 3
max_new_tokens = 6
[gate]
floor = 0.0
"""


def run_whole(architecture: str, asked: AskedIds) -> CaptureOutcome | str:
    """Return the boundaries whose states reach the draft's `fc` in a running engine, or why they cannot be seen here.

    Args:
        architecture: One of `harness.conformance.targets.RUNNABLE`.
        asked: The layer ids in the draft's config.
    """
    assert asked.ids is not None
    try:
        with tempfile.TemporaryDirectory(prefix="harness-conformance-") as folder:
            return CaptureOutcome(_received(_write_pair(Path(folder), architecture, asked.ids)))
    except HarnessError as error:
        # The log is a file of this machine, which readers of the matrix do not have.
        return one_line(error.problem if isinstance(error, EngineError) else str(error), 300)


def _received(file: Path) -> tuple[int | None, ...]:
    pair = prepare(file, engine="sglang")
    prompts = load_prompts(pair)
    arguments = server_arguments(pair, running=1, tokens=1024)
    with running_engine(pair, arguments, _PATIENCE) as engine:
        with engine.writing_states():
            decode(engine, prompts, pair.limits)
        calls = read_state_files(engine.watch)
        if not calls or calls[0][0] != "EXTEND":
            raise EngineError(f"the draft's first call was {calls[0][0] if calls else 'missing'}, not the prompt's")
        received = safetensors.torch.load_file(calls[0][1])["states"]
    states, _ = boundary_states(pair.target.path, prompts[0].ids)
    return tuple(matching_boundary(slot, states) for slot in received.split(states[0].shape[-1], dim=-1))


def _write_pair(folder: Path, architecture: str, ids: tuple[int, ...]) -> Path:
    write_target(architecture, folder / "target", NUM_LAYERS)
    _write_draft(folder / "draft", ids)
    line = {"id": "p", "category": "none", "token_ids": list(asked_tokens())}
    (folder / "prompts.jsonl").write_text(json.dumps(line) + "\n")
    file = folder / "conformance.pair.toml"
    file.write_text(_PAIR)
    return file


def _write_draft(folder: Path, ids: tuple[int, ...]) -> None:
    """Write a draft of random weights: only its input is of interest, not its proposals."""
    folder.mkdir()
    config: dict[str, Any] = {
        **TINY_SIZES,
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "draft_vocab_size": TINY_SIZES["vocab_size"],
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        EAGLE_SECTION: {IDS_KEY: list(ids), "use_aux_hidden_state": True},
    }
    (folder / "config.json").write_text(json.dumps(config))
    generator = torch.Generator().manual_seed(1)
    # Without d2t the draft takes the target's vocabulary, and without embeddings the target's embeddings.
    tensors = {
        name: torch.randn(tensor.shape, generator=generator) * 0.3 + ("norm" in name)
        for name, tensor in expected_tensors(read_draft_spec(folder), len(ids)).items()
        if name not in ("embed_tokens.weight", "d2t", "t2d")
    }
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
