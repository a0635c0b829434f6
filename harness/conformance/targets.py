"""Tiny targets of random weights on disk, in the shapes that SGLang's own classes require."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.models.tiny import TINY_SIZES, TINY_TARGETS, move_norms_off_one
from harness.pair.quiet import quiet

__all__ = ["RUNNABLE", "write_target"]

# SGLang's classes of these do not capture states for EAGLE-3.
_CAPTURE_NOTHING = ("Olmo2ForCausalLM", "SmolLM3ForCausalLM")

RUNNABLE = tuple(name for name in TINY_TARGETS if name not in _CAPTURE_NOTHING)
"""The architectures whose real classes can be run."""


def write_target(architecture: str, folder: Path, num_layers: int, **sizes: Any) -> None:
    """Write a target of random weights, norm weights off one, float32, into a folder.

    Args:
        architecture: One of `RUNNABLE`.
        folder: The checkpoint's folder, made if it is missing.
        num_layers: The number of decoder blocks, N.
        **sizes: Values of its config that differ from the table's.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    kind, table = TINY_TARGETS[architecture]
    extra = {**table, **sizes}
    with quiet():
        config = AutoConfig.for_model(kind, **{**TINY_SIZES, "num_hidden_layers": num_layers, **extra})
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, trust_remote_code=False)
        move_norms_off_one(model)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                # SGLang computes Apertus' softplus of these in bfloat16. From 20 on the softplus is the number itself,
                # which is exact there, so rounding does not separate the two implementations.
                if "act_fn.alpha" in name:
                    parameter.fill_(24.0)
        model.save_pretrained(folder)
    file = folder / "config.json"
    written = json.loads(file.read_text())
    # Keys that transformers leaves out of the file and SGLang reads from it.
    missing = {key: value for key, value in extra.items() if key not in written}
    file.write_text(json.dumps(written | missing | {"architectures": [architecture]}, indent=2))
