"""A tiny Gemma 3 pair of random weights on disk: SGLang 0.5.17 to 0.5.23 captures its states without the residual."""

from __future__ import annotations

import json
from pathlib import Path

import safetensors.torch

from harness.conformance.targets import write_target
from suites.support.random_pair import LIVE, PAIR, write_draft, write_prompts

IDS, BOUNDARIES, LAYERS = [1, 3, 6], (2, 4, 7), 8
# The embedding has no residual to lose: of these, one boundary in three is captured.
IDS_WITH_EMBEDDING = [-1, 3, 6]


def write_gemma3_pair(folder: Path, *, ids: list[int] | None = None) -> Path:
    """Write the pair, trained as SpecForge counts, and return its pair file."""
    write_target("Gemma3ForCausalLM", folder / "target", LAYERS, tie_word_embeddings=False)
    weights = folder / "target" / "model.safetensors"
    tensors = safetensors.torch.load_file(weights)
    # As in the random pair: few rows are live, so that target and draft agree often enough by chance.
    tensors["lm_head.weight"][LIVE:] = 0
    safetensors.torch.save_file(tensors, weights, metadata={"format": "pt"})
    eagle = {"eagle_aux_hidden_state_layer_ids": ids or IDS, "use_aux_hidden_state": True}
    write_draft(folder / "draft", max_position_embeddings=256, eagle_config=eagle)
    # Enough windows that a boundary moved by one can be told from the noise of any arm.
    write_prompts(folder / "prompts.jsonl", (3, 9, 1, 17, 5, 30, 20, 21, 22, 23))
    file = folder / "random.pair.toml"
    file.write_text(PAIR)
    return file


def serve(file: Path, version: str = "0.5.23") -> None:
    """Say in the pair file that a release of SGLang serves the pair."""
    file.write_text(file.read_text().replace("[decode]", f'served_by = "sglang=={version}"\n[decode]'))


def set_ids(file: Path, ids: list[int]) -> None:
    """Change the layer ids in the draft's config."""
    config = file.parent / "draft" / "config.json"
    body = json.loads(config.read_text())
    body["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = ids
    config.write_text(json.dumps(body))
