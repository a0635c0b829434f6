"""A tiny pair with random weights, written to disk in the real layout: for tests that need any pair, or many.

With random weights target and draft agree by chance only. Few rows of both heads are non-zero, so that chance is high
enough for every accepted count to occur.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from harness.models.draft import Eagle3Draft
from harness.models.draft_weights import load_draft
from harness.pair.draft_spec import read_draft_spec

LAYERS, WIDTH, VOCAB, DRAFT_VOCAB, LIVE = 4, 32, 64, 40, 6
# With this seed no greedy continuation loops; with 0, one does.
TARGET_SEED = 3

DRAFT_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "num_hidden_layers": 1,
    "vocab_size": VOCAB,
    "draft_vocab_size": DRAFT_VOCAB,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [-1, 1, 3], "use_aux_hidden_state": True},
}

# SGLang's loop over layers never reaches the last boundary, which the random pair has otherwise.
SERVABLE = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [-1, 0, 2], "use_aux_hidden_state": True}}

PAIR = """
name = "random"
target = "target"
draft = "draft"
prompts = "prompts.jsonl"
chat_template = "none"
trained_as = "specforge"
[decode]
num_steps = 4
max_new_tokens = 24
[gate]
floor = 0.0
"""


def write_target(folder: Path, *, seed: int = TARGET_SEED, eos: int | None = None, layers: int = LAYERS) -> None:
    """Write a random LlamaForCausalLM whose norm weights are off one."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=WIDTH,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        vocab_size=VOCAB,
        max_position_embeddings=512,
        initializer_range=0.3,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=eos,
        pad_token_id=None,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.3)
        model.lm_head.weight[LIVE:] = 0
        model.lm_head.weight[:LIVE] *= 3
    model.save_pretrained(folder)


def write_draft(folder: Path, *, seed: int = 1, **changes: Any) -> None:
    """Write a random SpecForge-style draft; `changes` go into its config."""
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads(json.dumps(DRAFT_CONFIG)) | changes
    (folder / "config.json").write_text(json.dumps(config))
    spec = read_draft_spec(folder)
    torch.manual_seed(seed)
    draft = Eagle3Draft(spec)
    tensors = {}
    for name, tensor in draft.state_dict().items():
        if name in ("embed_tokens.weight", "d2t", "t2d"):
            continue
        noise = torch.randn(tensor.shape)
        tensors[name] = 1 + 0.3 * noise if "norm" in name else 0.3 * noise
    tensors["lm_head.weight"][LIVE:] = 0
    # The live draft ids map to the live target ids; the others are spread over the vocabulary.
    targets = torch.cat((torch.arange(LIVE), torch.arange(DRAFT_VOCAB - LIVE) + VOCAB - DRAFT_VOCAB + LIVE))
    tensors["d2t"] = targets - torch.arange(DRAFT_VOCAB)
    mask = torch.zeros(VOCAB, dtype=torch.bool)
    mask[targets] = True
    tensors["t2d"] = mask
    safetensors.torch.save_file(tensors, folder / "model.safetensors")


def write_prompts(file: Path, lengths: tuple[int, ...] = (3, 9, 1, 17, 5, 30)) -> None:
    """Write prompts as token ids."""
    generator = torch.Generator().manual_seed(7)
    lines = [
        {
            "id": f"p{index}",
            "category": "ab"[index % 2],
            "token_ids": torch.randint(0, VOCAB, (length,), generator=generator).tolist(),
        }
        for index, length in enumerate(lengths)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_pair(
    folder: Path,
    *,
    eos: int | None = None,
    draft: dict[str, Any] | None = None,
    pair: str = PAIR,
    target_seed: int = TARGET_SEED,
) -> Path:
    """Write a whole pair and return its pair file."""
    write_target(folder / "target", seed=target_seed, eos=eos)
    write_draft(folder / "draft", **(draft or {}))
    write_prompts(folder / "prompts.jsonl")
    file = folder / "random.pair.toml"
    file.write_text(pair)
    return file


def random_ids(batch: int, length: int) -> Tensor:
    """Return random token ids [batch, length], the same each time."""
    return torch.randint(0, VOCAB, (batch, length), generator=torch.Generator().manual_seed(5))


def load_written_draft(folder: Path, **changes: Any) -> Eagle3Draft:
    write_draft(folder, **changes)
    spec = read_draft_spec(folder)
    embedding = torch.randn(VOCAB, WIDTH, generator=torch.Generator().manual_seed(9))
    return load_draft(spec, num_boundaries=3, target_embedding=embedding, dtype=torch.float64)
