"""Random draft checkpoints that cover every flag of an EAGLE-3 draft's config, in the layouts that writers use."""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from suites.support.numpy_draft import ACTIVATIONS

__all__ = ["ROPES", "DraftCase", "random_case", "write_case"]

VOCAB = 60
HEADS = 6
MAX_POSITIONS = 512

ROPES: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
    "yarn, all keys": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 128,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
        "mscale": 1.0,
        "mscale_all_dim": 0.5,
        "truncate": False,
    },
}

_DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


@dataclass(frozen=True)
class DraftCase:
    """A random draft's choices.

    Attributes:
        seed: Of its weights.
        boundaries: How many target states are concatenated.
        use_aux_hidden_state: As in the config, and so for the other flags.
        nested: Whether the flags are in the section `eagle_config`.
        legacy: Whether `fc_norm` has its older name.
        narrow_heads: Whether `head_dim` is other than `hidden_size / heads`.
        kv_heads: Key and value heads, of six heads.
        other_width: Whether the target is wider than the draft.
        small_vocabulary: Whether the draft's vocabulary is smaller than the target's.
        own_embedding: Whether the checkpoint has an embedding.
        rope: One of `ROPES`.
        old_rope: Whether the rope keys are `rope_theta` and `rope_scaling`; `rope_parameters` otherwise.
        dtype: Of the weights in the file.
        prefix: Of the layer's tensors.
        speculators: Whether the config is speculators'.
    """

    seed: int = 0
    boundaries: int = 3
    use_aux_hidden_state: bool = True
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_before_residual: bool = False
    norm_output: bool = False
    nested: bool = False
    legacy: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    tie_word_embeddings: bool = False
    narrow_heads: bool = True
    kv_heads: int = 2
    hidden_act: str = "silu"
    other_width: bool = False
    small_vocabulary: bool = True
    own_embedding: bool = False
    rope: str = "default"
    old_rope: bool = True
    dtype: torch.dtype = torch.float32
    prefix: str = "midlayer."
    speculators: bool = False

    @property
    def hidden_size(self) -> int:
        """The draft's width."""
        return 24

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return 10 if self.narrow_heads else self.hidden_size // HEADS

    @property
    def target_width(self) -> int:
        """Width of one target state."""
        return 28 if self.other_width else self.hidden_size

    @property
    def draft_vocabulary(self) -> int:
        """Size of the draft's vocabulary."""
        return 37 if self.small_vocabulary else VOCAB

    @property
    def target_embedding(self) -> Tensor:
        """The target's table [vocab, target width]."""
        generator = torch.Generator().manual_seed(self.seed + 1000)
        return torch.randn(VOCAB, self.target_width, generator=generator, dtype=torch.float64)

    @property
    def config(self) -> dict[str, Any]:
        """The checkpoint's config."""
        names = ("norm_before_fc", "norm_before_residual", "norm_output", "use_aux_hidden_state")
        flags = {name: getattr(self, name) for name in names}
        flags["use_aux_norm" if self.legacy else "fc_norm"] = self.fc_norm
        rope = {"rope_theta": 100.0, **ROPES[self.rope]}
        sizes: dict[str, Any] = {
            "hidden_size": self.hidden_size,
            "intermediate_size": 20,
            "num_attention_heads": HEADS,
            "num_key_value_heads": self.kv_heads,
            "num_hidden_layers": 1,
            "vocab_size": VOCAB,
            "max_position_embeddings": MAX_POSITIONS,
            "rms_norm_eps": 1e-3,
            "hidden_act": self.hidden_act,
            "attention_bias": self.attention_bias,
            "mlp_bias": self.mlp_bias,
        }
        if self.narrow_heads:
            sizes["head_dim"] = self.head_dim
        if not self.old_rope:
            sizes["rope_parameters"] = {"rope_type": "default", **rope}
        else:
            sizes["rope_theta"] = rope.pop("rope_theta")
            sizes["rope_scaling"] = rope or None
        config: dict[str, Any] = {"tie_word_embeddings": self.tie_word_embeddings}
        if self.small_vocabulary:
            config["draft_vocab_size"] = self.draft_vocabulary
        if self.other_width:
            config["target_hidden_size"] = self.target_width
        config |= {"eagle_config": flags} if self.nested else flags
        if self.speculators:
            return {
                "architectures": ["Eagle3Speculator"],
                "speculators_model_type": "eagle3",
                "transformer_layer_config": sizes,
                **config,
            }
        return {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", **sizes, **config}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the tensors of the checkpoint but for its vocabulary map."""
        width, target, inner = self.hidden_size, self.target_width, 20
        queries, keys = HEADS * self.head_dim, self.kv_heads * self.head_dim
        linear = {
            "self_attn.q_proj": (queries, 2 * width),
            "self_attn.k_proj": (keys, 2 * width),
            "self_attn.v_proj": (keys, 2 * width),
            "self_attn.o_proj": (width, queries),
            "mlp.gate_proj": (inner, width),
            "mlp.up_proj": (inner, width),
            "mlp.down_proj": (width, inner),
        }
        shapes: dict[str, tuple[int, ...]] = {"norm.weight": (width,)}
        for name, shape in linear.items():
            shapes[f"{self.prefix}{name}.weight"] = shape
            if self.attention_bias if name.startswith("self_attn") else self.mlp_bias:
                shapes[f"{self.prefix}{name}.bias"] = shape[:1]
        for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
            shapes[f"{self.prefix}{name}.weight"] = (width,)
        if self.use_aux_hidden_state:
            shapes["fc.weight"] = (width, self.boundaries * target)
        if self.norm_before_fc:
            shapes["input_norm.weight"] = (self.boundaries * target,)
        if self.fc_norm:
            names = [f"fc_norm.{index}" for index in range(self.boundaries)]
            if self.legacy:
                names = ["aux_norm_low", "aux_norm_mid", "aux_norm_high"]
            shapes |= {f"{name}.weight": (target,) for name in names}
        if self.own_embedding:
            shapes["embed_tokens.weight"] = (VOCAB, width)
        if not self.tie_word_embeddings:
            shapes["lm_head.weight"] = (self.draft_vocabulary, width)
        return shapes


def random_case(seed: int) -> DraftCase:
    """Return the case of a seed, one whose config does not contradict itself."""
    chance = random.Random(seed)  # noqa: S311 - which cases are tried is no secret

    def coin() -> bool:
        return chance.random() < 0.5

    uses_fc = chance.random() < 0.75
    norm = chance.choice(("norm_before_fc", "fc_norm", None)) if uses_fc else None
    legacy = norm == "fc_norm" and coin()
    other_width = uses_fc and coin()
    tied = coin()
    speculators = chance.random() < 0.25
    return DraftCase(
        seed=seed,
        boundaries=(3 if legacy else chance.choice((2, 3, 4))) if uses_fc else 1,
        use_aux_hidden_state=uses_fc,
        norm_before_fc=norm == "norm_before_fc",
        fc_norm=norm == "fc_norm",
        norm_before_residual=coin(),
        norm_output=coin(),
        nested=coin(),
        legacy=legacy,
        attention_bias=coin(),
        mlp_bias=coin(),
        tie_word_embeddings=tied,
        narrow_heads=coin(),
        kv_heads=chance.choice((1, 2, 3, 6)),
        hidden_act=tuple(ACTIVATIONS)[seed % len(ACTIVATIONS)],
        other_width=other_width,
        small_vocabulary=not tied and coin(),
        own_embedding=other_width or coin(),
        rope=tuple(ROPES)[seed % len(ROPES)],
        old_rope=coin(),
        dtype=chance.choice(_DTYPES),
        prefix=chance.choice(("midlayer.", "layers.0.", "model.layers.0.")),
        speculators=speculators,
    )


def write_case(folder: Path, case: DraftCase) -> None:
    """Write a case's checkpoint."""
    generator = torch.Generator().manual_seed(case.seed)
    tensors: dict[str, Tensor] = {}
    for name, shape in case.shapes().items():
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        if "norm" in name:
            noise = 1 + 0.4 * noise
        elif name.endswith(".bias"):
            noise = 0.4 * noise
        elif name != "embed_tokens.weight":
            # Outputs of order one, so that attention and the activation are far from linear.
            noise = 1.5 * noise / math.sqrt(shape[1])
        tensors[name] = noise.to(case.dtype)
    if case.small_vocabulary:
        targets = torch.randperm(VOCAB, generator=generator)[: case.draft_vocabulary].sort().values
        tensors["d2t"] = targets - torch.arange(case.draft_vocabulary)
        mask = torch.zeros(VOCAB, dtype=torch.bool)
        mask[targets] = True
        tensors["t2d"] = mask
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(case.config))
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
