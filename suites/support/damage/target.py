"""Damage to the target: its config, its generation config, its weights."""

from __future__ import annotations

from typing import Any

from suites.support.damage.checkpoints import broken_folder, broken_weights
from suites.support.damage.editing import (
    GENERATION_CONFIG,
    TARGET_CONFIG,
    TARGET_WEIGHTS,
    Damage,
    all_of,
    broken_json,
    drop_value,
    layer_ids,
    set_value,
)


def _target(name: str, key: str, value: Any, *says: str) -> Damage:
    return Damage(f"target {name}", set_value(TARGET_CONFIG, key, to=value), (TARGET_CONFIG, key, *says))


_CONFIG = [
    Damage(
        "target without vocab_size", drop_value(TARGET_CONFIG, "vocab_size"), (TARGET_CONFIG, "vocab_size", "missing")
    ),
    _target("vocab_size a text", "vocab_size", "64", "found '64'", "expected an integer"),
    _target("layers a float", "num_hidden_layers", 4.0, "found 4.0", "expected an integer"),
    _target("no layers", "num_hidden_layers", 0, "found 0", "from 1 to 4096"),
    _target("a billion layers", "num_hidden_layers", 10**9, "found 1000000000", "expected"),
    _target("hidden size true", "hidden_size", True, "found True", "expected an integer"),
    _target("architectures null", "architectures", None, "found None", "expected a list"),
    _target("architectures a lone surrogate", "architectures", [7, "\ud800"], "found [7", "expected a list"),
    _target("text_config a list", "text_config", [1], "found [1]", "expected an object"),
    _target("eos a text", "eos_token_id", "end", "found 'end'", "expected a list of integers"),
    Damage(
        "generation config's eos a float",
        set_value("target/generation_config.json", "eos_token_id", to=1.5),
        ("target/generation_config.json", "eos_token_id", "found 1.5", "expected a list of integers"),
    ),
    Damage(
        "target heads a text",
        set_value(TARGET_CONFIG, "num_attention_heads", to="4"),
        ("target", "cannot be loaded", "num_attention_heads", "expected"),
    ),
    Damage(
        "target of another width than its weights",
        set_value(TARGET_CONFIG, "intermediate_size", to=40),
        (TARGET_WEIGHTS, "mlp.gate_proj", "found [48, 32]", "expected [40, 32]"),
    ),
    Damage(
        "target width in the billions",
        set_value(TARGET_CONFIG, "intermediate_size", to=2 * 10**9),
        (TARGET_WEIGHTS, "mlp.gate_proj", "found [48, 32]", "expected [2000000000, 32]"),
    ),
    Damage(
        "target of fewer layers than its weights",
        all_of(set_value(TARGET_CONFIG, "num_hidden_layers", to=3), layer_ids(-1, 1, 2)),
        (TARGET_WEIGHTS, "model.layers.3", "its config does not have", "expected"),
        ("measure", "PAIR"),
    ),
    Damage(
        "target of more layers than its weights",
        set_value(TARGET_CONFIG, "num_hidden_layers", to=5),
        (TARGET_WEIGHTS, "model.layers.4", "lack tensors", "expected"),
        ("measure", "PAIR"),
    ),
    Damage(
        "target with code of its own",
        all_of(
            set_value(TARGET_CONFIG, "model_type", to="homemade"),
            set_value(TARGET_CONFIG, "auto_map", to={"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"}),
        ),
        ("target", "cannot be loaded", "expected"),
    ),
    Damage(
        "target with a kernel of a hub",
        set_value(TARGET_CONFIG, "attn_implementation", to="owner/kernel"),
        (TARGET_CONFIG, "attn_implementation", "found 'owner/kernel'", "expected an implementation", "Next: remove"),
    ),
    Damage(
        "target that loads and cannot run",
        set_value(TARGET_CONFIG, "return_dict", to=False),
        ("target", "cannot be run", "AttributeError", "expected"),
    ),
    Damage(
        "target that computes NaN",
        set_value(TARGET_CONFIG, "rms_norm_eps", to=-1e9),
        ("target", "not finite", "expected"),
        ("measure", "PAIR", "--engine", "reference:sequential"),
    ),
]

TARGET = [
    *broken_folder("target"),
    *broken_json(GENERATION_CONFIG, "generation config", "expected")[2:],
    *_CONFIG,
    *broken_weights(TARGET_WEIGHTS, norm="model.norm.weight", matrix="model.layers.2.mlp.up_proj.weight"),
]
