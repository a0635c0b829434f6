"""An EAGLE-3 draft in numpy, in float64, one position and one head at a time.

The harness's replay and its decoders run one draft module, so a fault in that module would be in every golden as well.
This one shares no code with it, nor with transformers or torch. It is written from public sources:

- EAGLE-3 (Li et al., 2025) and `llama_eagle3.py` of SGLang 0.5.23 for the layer, `fc`, `d2t`, `norm_before_fc`,
  `fc_norm` and `norm_output`; that of vLLM for `norm_before_residual`, `use_aux_hidden_state` and the biases;
- RoFormer (Su et al., 2021) for rotary embedding, in the half-split layout of LLaMA's public checkpoints;
- Meta's reference code of Llama 3.1 for `llama3`, and the code of YaRN's authors (Peng et al., 2023) for `yarn`: both
  blend by dimension; YaRN's paper blends by the number of rotations and does not round the limits;
- the safetensors format: eight bytes of header length, a JSON header, raw little-endian data.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Chain", "Float", "NumpyDraft", "Prefix", "read_safetensors", "rope_frequencies"]

Float = NDArray[np.float64]

_PLAIN_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "BOOL": "?"}


def read_safetensors(file: Path) -> dict[str, NDArray[Any]]:
    """Return a file's tensors: floating-point ones as float64, exactly; int64 and bool as they are."""
    raw = file.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    tensors: dict[str, NDArray[Any]] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        first, end = (8 + length + offset for offset in entry["data_offsets"])
        values: NDArray[Any]
        if entry["dtype"] == "BF16":
            # The upper half of a float32.
            halves = np.frombuffer(raw[first:end], "<u2").astype(np.uint32)
            values = (halves << 16).view(np.float32)
        else:
            values = np.frombuffer(raw[first:end], _PLAIN_DTYPES[entry["dtype"]])
        if values.dtype.kind == "f":
            values = values.astype(np.float64)
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def _gelu_tanh(x: Float) -> Float:
    return np.asarray(x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def _gelu(x: Float) -> Float:
    return np.asarray(x / 2 * (1 + np.array([math.erf(value / math.sqrt(2)) for value in x])))


def _silu(x: Float) -> Float:
    return np.asarray(x / (1 + np.exp(-x)))


ACTIVATIONS: Mapping[str, Callable[[Float], Float]] = {
    "silu": _silu,
    "swish": _silu,
    "gelu": _gelu,
    "gelu_python": _gelu,
    "gelu_10": lambda x: np.clip(_gelu(x), -10, 10),
    "gelu_new": _gelu_tanh,
    "gelu_fast": _gelu_tanh,
    "gelu_accurate": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "gelu_python_tanh": _gelu_tanh,
    "quick_gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
}


def rope_frequencies(config: Mapping[str, Any], head_dim: int) -> tuple[Float, float]:
    """Return the angle per position of each pair of dimensions, and the factor on cosines and sines.

    Args:
        config: The keys of a transformer's config, its rope keys among them.
        head_dim: Width of a head.
    """
    keys = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = float(keys.get("rope_theta", config.get("rope_theta", 10000.0)))
    plain = np.array([theta ** (-2 * pair / head_dim) for pair in range(head_dim // 2)])
    kind = keys.get("rope_type", keys.get("type", "default"))
    if kind == "default":
        return plain, 1.0
    factor = float(keys["factor"])
    if kind == "linear":
        return plain / factor, 1.0
    original = float(keys["original_max_position_embeddings"])
    if kind == "llama3":
        return np.array([_llama3(frequency, factor, original, keys) for frequency in plain]), 1.0
    assert kind == "yarn"
    kept = 1 - _yarn_ramp(head_dim, theta, original, keys)
    return plain * kept + plain / factor * (1 - kept), _yarn_attention(factor, keys)


def _llama3(frequency: float, factor: float, original: float, keys: Mapping[str, Any]) -> float:
    low, high = float(keys["low_freq_factor"]), float(keys["high_freq_factor"])
    wavelength = 2 * math.pi / frequency
    if wavelength < original / high:
        return frequency
    if wavelength > original / low:
        return frequency / factor
    smooth = (original / wavelength - low) / (high - low)
    return (1 - smooth) * frequency / factor + smooth * frequency


def _yarn_ramp(head_dim: int, theta: float, original: float, keys: Mapping[str, Any]) -> Float:
    """Return 0 for pairs that keep their frequency to 1 for pairs that are interpolated."""

    def dimension(rotations: float) -> float:
        return head_dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(keys.get("beta_fast", 32)), dimension(keys.get("beta_slow", 1))
    if keys.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001
    return np.clip((np.arange(head_dim // 2) - low) / (high - low), 0.0, 1.0)


def _yarn_attention(factor: float, keys: Mapping[str, Any]) -> float:
    def magnitude(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    if "mscale" in keys and "mscale_all_dim" in keys:
        return magnitude(keys["mscale"]) / magnitude(keys["mscale_all_dim"])
    return magnitude(1.0)


# Keys (after rotation) and values of one token, each [kv heads, head_dim].
_KeysValues = tuple[Float, Float]


@dataclass(frozen=True)
class Prefix:
    """What the draft computes of a text's known part, at each position.

    Attributes:
        fused: `g` [T, H].
        hidden: Layer output [T, H].
        past: Keys and values of each position.
    """

    fused: Float
    hidden: Float
    past: list[_KeysValues]


@dataclass(frozen=True)
class Chain:
    """The steps of a chain.

    Attributes:
        hidden: Layer output at each step [k, H].
        logits: Over the draft's vocabulary [k, draft vocab].
        tokens: The argmax at each step, target ids.
    """

    hidden: Float
    logits: Float
    tokens: list[int]


class NumpyDraft:
    """A draft from its checkpoint folder.

    Args:
        folder: Where `config.json` and the safetensors files are.
        target_embedding: The target's table [vocab, H], used if the checkpoint lacks one.

    Attributes:
        frequencies: The angle per position of each pair of dimensions; may be replaced, to leave its rounding out of a
            comparison.
        rope_factor: What cosines and sines are multiplied by.
    """

    def __init__(self, folder: Path, target_embedding: Float | None = None) -> None:
        config = json.loads((folder / "config.json").read_text())
        sizes = config.get("transformer_layer_config", config)
        self._weights: dict[str, NDArray[Any]] = {}
        for file in sorted(folder.glob("*.safetensors")):
            for name, values in read_safetensors(file).items():
                self._weights[_plain_name(name)] = values
        if "embed_tokens.weight" not in self._weights:
            assert target_embedding is not None
            self._weights["embed_tokens.weight"] = target_embedding
        if config.get("tie_word_embeddings", False) and "lm_head.weight" not in self._weights:
            self._weights["lm_head.weight"] = self._weights["embed_tokens.weight"]
        self._eps = float(sizes.get("rms_norm_eps", 1e-6))
        self._heads = int(sizes["num_attention_heads"])
        self._kv_heads = int(sizes.get("num_key_value_heads", self._heads))
        self._head_dim = int(sizes.get("head_dim", sizes["hidden_size"] // self._heads))
        self._target_width = int(config.get("target_hidden_size") or sizes["hidden_size"])
        self._activation = ACTIVATIONS[sizes.get("hidden_act", "silu")]
        self._has_fc = _flag(config, "use_aux_hidden_state", True)
        self._norm_before_fc = _flag(config, "norm_before_fc", False)
        self._fc_norm = _flag(config, "fc_norm", _flag(config, "use_aux_norm", False))
        self._norm_before_residual = _flag(config, "norm_before_residual", False)
        self._norm_output = _flag(config, "norm_output", False)
        self.frequencies, self.rope_factor = rope_frequencies(sizes, self._head_dim)

    def prefix(self, tokens: Sequence[int], states: Float) -> Prefix:
        """Run step 0 at every position.

        Args:
            tokens: The token after each position.
            states: Concatenated target states [T, width].
        """
        past: list[_KeysValues] = []
        fused = [self.fuse(state) for state in states]
        hidden = [
            self._layer(token, g, position, past) for position, (token, g) in enumerate(zip(tokens, fused, strict=True))
        ]
        return Prefix(np.stack(fused), np.stack(hidden), past)

    def chain(self, prefix: Prefix, start: int, steps: int, known: Sequence[int] | None = None) -> Chain:
        """Run a chain.

        Args:
            prefix: The known part of the text; positions after `start` are not looked at.
            start: The position of step 0.
            steps: Its length.
            known: The tokens that steps 1 and later read, target ids; each step's own argmax if `None`.
        """
        past = prefix.past[: start + 1]
        hidden, logits = [prefix.hidden[start]], [self.logits(prefix.hidden[start])]
        tokens = [self._choice(logits[0])]
        for step in range(1, steps):
            g = self._norm(hidden[-1], "norm") if self._norm_output else hidden[-1]
            token = tokens[-1] if known is None else known[step - 1]
            hidden.append(self._layer(token, g, start + step, past))
            logits.append(self.logits(hidden[-1]))
            tokens.append(self._choice(logits[-1]))
        return Chain(np.stack(hidden), np.stack(logits), tokens)

    def fuse(self, state: Float) -> Float:
        """Return `g` [H] of one position's concatenated target states."""
        if not self._has_fc:
            return state
        if self._norm_before_fc:
            state = self._norm(state, "input_norm")
        if self._fc_norm:
            chunks = state.reshape(-1, self._target_width)
            state = np.concatenate([self._norm(chunk, f"fc_norm.{index}") for index, chunk in enumerate(chunks)])
        return self._linear(state, "fc")

    def logits(self, hidden: Float) -> Float:
        """Return the logits over the draft's vocabulary from a layer output [H]."""
        return self._linear(self._norm(hidden, "norm"), "lm_head")

    def _choice(self, logits: Float) -> int:
        draft_id = int(np.argmax(logits))
        return draft_id + int(self._weights["d2t"][draft_id]) if "d2t" in self._weights else draft_id

    def _layer(self, token: int, g: Float, position: int, past: list[_KeysValues]) -> Float:
        """Run one token through the layer; its keys and values are added to `past`."""
        embedding = self._norm(self._weights["embed_tokens.weight"][token], "midlayer.input_layernorm")
        state = self._norm(g, "midlayer.hidden_norm")
        inputs = np.concatenate((embedding, state))
        queries = self._linear(inputs, "midlayer.self_attn.q_proj").reshape(self._heads, self._head_dim)
        keys = self._linear(inputs, "midlayer.self_attn.k_proj").reshape(self._kv_heads, self._head_dim)
        values = self._linear(inputs, "midlayer.self_attn.v_proj").reshape(self._kv_heads, self._head_dim)
        past.append((np.stack([self._rotate(key, position) for key in keys]), values))
        attended = [self._attend(self._rotate(query, position), head, past) for head, query in enumerate(queries)]
        residual = state if self._norm_before_residual else g
        middle = residual + self._linear(np.concatenate(attended), "midlayer.self_attn.o_proj")
        x = self._norm(middle, "midlayer.post_attention_layernorm")
        gated = self._activation(self._linear(x, "midlayer.mlp.gate_proj")) * self._linear(x, "midlayer.mlp.up_proj")
        return middle + self._linear(gated, "midlayer.mlp.down_proj")

    def _attend(self, query: Float, head: int, past: list[_KeysValues]) -> Float:
        # Consecutive query heads share a key head.
        shared = head // (self._heads // self._kv_heads)
        scores = np.array([query @ keys[shared] for keys, _ in past]) / math.sqrt(self._head_dim)
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        return np.asarray(weights @ np.stack([values[shared] for _, values in past]))

    def _rotate(self, head: Float, position: int) -> Float:
        # Dimension i is turned together with dimension i + d/2.
        low, high = np.split(head, 2)
        cos, sin = np.cos(position * self.frequencies), np.sin(position * self.frequencies)
        return np.concatenate((low * cos - high * sin, low * sin + high * cos)) * self.rope_factor

    def _norm(self, x: Float, name: str) -> Float:
        weight: Float = self._weights[f"{name}.weight"]
        return weight * x / math.sqrt(float(np.mean(x * x)) + self._eps)

    def _linear(self, x: Float, name: str) -> Float:
        weight: Float = self._weights[f"{name}.weight"]
        bias = self._weights.get(f"{name}.bias")
        return weight @ x if bias is None else weight @ x + bias


_LEGACY_NORMS = ("aux_norm_low.", "aux_norm_mid.", "aux_norm_high.")


def _plain_name(name: str) -> str:
    name = name.removeprefix("model.").replace("layers.0.", "midlayer.", 1)
    for index, legacy in enumerate(_LEGACY_NORMS):
        name = name.replace(legacy, f"fc_norm.{index}.", 1)
    return name


def _flag(config: Mapping[str, Any], name: str, default: bool) -> bool:
    nested = config.get("eagle_config") or {}
    return bool(nested.get(name, config.get(name, default)))
