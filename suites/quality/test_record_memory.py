"""A pair is recorded in little more memory than its weights take, on a target of 1 GiB."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from harness.models.draft import Eagle3Draft
from harness.pair.draft_spec import read_draft_spec
from suites.support.forking import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere /proc does not show a process's memory"),
]

_SIZES = {"hidden_size": 1024, "intermediate_size": 4096, "vocab_size": 16384, "max_position_embeddings": 512}
_HEADS = {"num_attention_heads": 8, "num_key_value_heads": 2}
_LAYERS = 16
_PAIR = """name = "large"
target = "target"
draft = "draft"
prompts = "prompts.jsonl"
chat_template = "none"
trained_as = "vllm"

[decode]
num_steps = 2
max_new_tokens = 4

[gate]
floor = 0.01
strict = true

[engine]
device_map = "auto"
"""


def _write(folder: Path) -> int:
    """Write the pair; return the bytes of its weights."""
    torch.manual_seed(3)
    config = LlamaConfig(**_SIZES, **_HEADS, num_hidden_layers=_LAYERS, initializer_range=0.05)  # type: ignore[arg-type]
    LlamaForCausalLM(config).save_pretrained(folder / "target", max_shard_size="300MB")
    draft = folder / "draft"
    draft.mkdir()
    content = {
        **_SIZES,
        **_HEADS,
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": 256,
        "eagle_aux_hidden_state_layer_ids": [2, 8, 13],
    }
    (draft / "config.json").write_text(json.dumps(content))
    tensors = dict(Eagle3Draft(read_draft_spec(draft)).state_dict())
    del tensors["embed_tokens.weight"]
    safetensors.torch.save_file(tensors, draft / "model.safetensors")
    prompts = [{"id": f"p{row}", "category": "a", "token_ids": list(range(row + 1, row + 20))} for row in range(3)]
    (folder / "prompts.jsonl").write_text("".join(f"{json.dumps(prompt)}\n" for prompt in prompts))
    (folder / "large.pair.toml").write_text(_PAIR)
    return sum(file.stat().st_size for file in folder.rglob("*.safetensors"))


def test_recording_takes_little_more_than_the_weights(tmp_path: Path) -> None:
    weights = _write(tmp_path)
    assert weights > 2**30
    command = [sys.executable, "-m", "suites.support.peak_memory", str(tmp_path / "large.pair.toml")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    above = json.loads(done.stdout)["above"]
    print(f"\n{above / weights:.2f} x the weights, which are {weights / 2**30:.2f} GiB")  # noqa: T201
    # All of them were in memory at some time: otherwise it would not be they that were measured.
    assert 0.9 * weights < above <= 1.2 * weights
