"""Damage to the draft: its config, its layer ids, its weights."""

from __future__ import annotations

import math
from typing import Any

import torch

from suites.support.damage.checkpoints import broken_folder, broken_weights
from suites.support.damage.editing import (
    DRAFT_CONFIG,
    DRAFT_WEIGHTS,
    IDS,
    Damage,
    all_of,
    change_tensor,
    drop_value,
    layer_ids,
    pair_text,
    put,
    set_value,
    with_tensor,
    without_tensor,
)
from suites.support.random_pair import WIDTH

_OUTER = ("eagle_config", IDS)
_NESTED = ".".join(_OUTER)


def _draft(name: str, key: str, value: Any, *says: str) -> Damage:
    return Damage(f"draft {name}", set_value(DRAFT_CONFIG, key, to=value), (DRAFT_CONFIG, key, *says))


_CONFIG = [
    Damage(
        "draft without hidden_size", drop_value(DRAFT_CONFIG, "hidden_size"), (DRAFT_CONFIG, "hidden_size", "missing")
    ),
    _draft("of an unknown kind", "architectures", ["MedusaModel"], "found ['MedusaModel']", "LlamaForCausalLMEagle3"),
    Damage(
        "latent draft without its ranks",
        set_value(DRAFT_CONFIG, "architectures", to=["Eagle3DeepseekV2ForCausalLM"]),
        (DRAFT_CONFIG, "q_lora_rank", "the key is missing"),
    ),
    Damage(
        "latent draft, which the reference engine does not run",
        all_of(
            set_value(DRAFT_CONFIG, "architectures", to=["Eagle3DeepseekV2ForCausalLM"]),
            *(
                set_value(DRAFT_CONFIG, name, to=8)
                for name in ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
            ),
        ),
        (DRAFT_CONFIG, "architectures", "latent (MLA)", "found Eagle3DeepseekV2ForCausalLM", "harness layers"),
    ),
    _draft("of several layers at once", "architectures", ["PEagleDraftModel"], "a P-EAGLE draft has several layers"),
    _draft(
        "of a nameless kind", "architectures", ["\ud800\n"], "not of a known kind of draft", "LlamaForCausalLMEagle3"
    ),
    _draft("of two layers", "num_hidden_layers", 2, "found 2", "expected 1"),
    _draft("eagle_config a list", "eagle_config", [1], "found [1]", "expected an object"),
    _draft("for a larger vocabulary", "vocab_size", 128, "another vocabulary", "found 128", "expected 64", "Next:"),
    _draft("for another hidden size", "hidden_size", 64, "another hidden size", "found 64", "expected 32", "Next:"),
    _draft("of a wrong target_hidden_size", "target_hidden_size", 16, "found 16", "expected 32", "Next:"),
    _draft("of a larger draft vocabulary", "draft_vocab_size", 65, "found 65", "at most vocab_size = 64"),
    _draft("heads that do not divide", "num_key_value_heads", 3, "found 3", "a divisor of"),
    _draft("head_dim odd", "head_dim", 3, "found 3", "expected an even"),
    _draft("eps negative", "rms_norm_eps", -1e-5, "found -1e-05", "expected a number above 0"),
    _draft("eps NaN", "rms_norm_eps", math.nan, "found nan", "expected a number above 0"),
    _draft("eps of 400 digits", "rms_norm_eps", 10**400, "expected a number above 0"),
    _draft("activation unknown", "hidden_act", "sillu", "found sillu", "expected"),
    Damage(
        "draft bias without tensors",
        set_value(DRAFT_CONFIG, "attention_bias", to=True),
        (DRAFT_WEIGHTS, "k_proj.bias", "lack tensors", "Next:"),
    ),
    Damage(
        "draft width in the billions",
        set_value(DRAFT_CONFIG, "intermediate_size", to=2 * 10**9),
        (DRAFT_WEIGHTS, "mlp", "another shape", "found [32, 48]", "expected [32, 2000000000]"),
    ),
    _draft("width beyond any number", "intermediate_size", 10**30, "found 1000", "expected an integer"),
    _draft("rope_theta a text", "rope_theta", "ten", "rope", "'ten'", "expected"),
    _draft("rope_theta zero", "rope_theta", 0, "rope", "expected"),
    _draft("rope_scaling of an unknown type", "rope_scaling", {"rope_type": "spiral"}, "spiral", "expected"),
    _draft("rope_scaling by length", "rope_scaling", {"rope_type": "dynamic", "factor": 2.0}, "dynamic", "expected"),
    Damage(
        "draft of the final state",
        set_value(DRAFT_CONFIG, "eagle_config", "use_aux_hidden_state", to=False),
        (DRAFT_CONFIG, "use_aux_hidden_state", "found false", "expected true"),
    ),
]

_LAYER_IDS = [
    Damage("two ids", layer_ids(-1, 3), (DRAFT_WEIGHTS, "fc.weight", "[32, 96]", "[32, 64]", "2 boundaries")),
    Damage("four ids", layer_ids(-1, 0, 1, 3), (DRAFT_WEIGHTS, "fc.weight", "[32, 96]", "[32, 128]", "4 boundaries")),
    Damage("id below the range", layer_ids(-2, 1, 3), (DRAFT_CONFIG, _NESTED, "layer id -2", "from -1 to 3", "Next:")),
    Damage("id above the range", layer_ids(-1, 1, 4), (DRAFT_CONFIG, _NESTED, "layer id 4", "from -1 to 3", "Next:")),
    Damage("id of 30 digits", layer_ids(-1, 1, 10**30), (DRAFT_CONFIG, _NESTED, "layer id 1000", "from -1 to 3")),
    Damage("no ids", layer_ids(), (DRAFT_CONFIG, _NESTED, "found []", "at least one")),
    Damage("ids a text", set_value(DRAFT_CONFIG, *_OUTER, to="-1,1,3"), (DRAFT_CONFIG, _NESTED, "a list of integers")),
    Damage(
        "ids floats",
        set_value(DRAFT_CONFIG, *_OUTER, to=[-1.0, 1.0, 3.0]),
        (DRAFT_CONFIG, _NESTED, "a list of integers"),
    ),
    Damage(
        "two keys of ids that disagree",
        set_value(DRAFT_CONFIG, IDS, to=[0, 1, 3]),
        (DRAFT_CONFIG, _NESTED, "found [-1, 1, 3] and [0, 1, 3]", "expected one list", "Next: keep"),
    ),
    Damage(
        "two flags that disagree",
        all_of(
            set_value(DRAFT_CONFIG, "fc_norm", to=False), set_value(DRAFT_CONFIG, "eagle_config", "fc_norm", to=True)
        ),
        (DRAFT_CONFIG, "eagle_config.fc_norm and fc_norm", "found true and false", "expected one value"),
    ),
    Damage(
        "two norms before fc",
        all_of(set_value(DRAFT_CONFIG, "fc_norm", to=True), set_value(DRAFT_CONFIG, "norm_before_fc", to=True)),
        (DRAFT_CONFIG, "norm_before_fc", "exclude each other", "expected"),
    ),
    Damage(
        "no boundary left by the engine",
        all_of(layer_ids(3, 3, 3), pair_text("[decode]", 'served_by = "sglang==0.5.23"\n[decode]')),
        (DRAFT_CONFIG, _NESTED, "sglang==0.5.23 captures fewer states", "boundaries []", "expected [4, 4, 4]"),
    ),
    Damage(
        "no ids and no default",
        all_of(drop_value(DRAFT_CONFIG, *_OUTER), pair_text('"specforge"', '"boundary"')),
        (DRAFT_CONFIG, _NESTED, "does not have default ids", "Next: write"),
    ),
]

_D2T = "d2t"

_WEIGHTS = [
    Damage(
        "draft head missing",
        without_tensor(DRAFT_WEIGHTS, "lm_head.weight"),
        (DRAFT_WEIGHTS, "lm_head.weight", "Next:"),
    ),
    Damage("d2t missing", without_tensor(DRAFT_WEIGHTS, _D2T), (DRAFT_WEIGHTS, _D2T, "lack tensors", "Next:")),
    Damage(
        "d2t above the vocabulary",
        change_tensor(DRAFT_WEIGHTS, _D2T, put(60, (9,))),
        (DRAFT_WEIGHTS, "d2t[9]", "9 + 60 = 69", "0 to 63", "Next: d2t holds offsets"),
    ),
    Damage(
        "d2t below the vocabulary",
        change_tensor(DRAFT_WEIGHTS, _D2T, put(-10, (9,))),
        (DRAFT_WEIGHTS, "d2t[9]", "9 + -10 = -1", "0 to 63", "Next: d2t holds offsets"),
    ),
    Damage(
        "d2t of the greatest integer",
        change_tensor(DRAFT_WEIGHTS, _D2T, put(2**63 - 1, (9,))),
        (DRAFT_WEIGHTS, "d2t[9]", "0 to 63"),
    ),
    Damage(
        "d2t of floats",
        change_tensor(DRAFT_WEIGHTS, _D2T, lambda tensor: tensor.float()),
        (DRAFT_WEIGHTS, _D2T, "found torch.float32", "expected int64"),
    ),
    Damage(
        "d2t of complex numbers",
        change_tensor(DRAFT_WEIGHTS, _D2T, lambda tensor: tensor.to(torch.complex64)),
        (DRAFT_WEIGHTS, _D2T, "found torch.complex64", "expected int64"),
    ),
    Damage(
        "d2t short",
        change_tensor(DRAFT_WEIGHTS, _D2T, lambda tensor: tensor[:-1].clone()),
        (DRAFT_WEIGHTS, _D2T, "found [39]", "expected [40]"),
    ),
    Damage(
        "t2d of bytes",
        change_tensor(DRAFT_WEIGHTS, "t2d", lambda tensor: tensor.to(torch.uint8)),
        (DRAFT_WEIGHTS, "t2d", "found torch.uint8", "expected bool"),
    ),
    Damage(
        "t2d of eight-bit floats",
        change_tensor(DRAFT_WEIGHTS, "t2d", lambda tensor: tensor.to(torch.float8_e4m3fn)),
        (DRAFT_WEIGHTS, "t2d", "found torch.float8_e4m3fn", "expected bool"),
    ),
    Damage(
        "t2d long",
        with_tensor(DRAFT_WEIGHTS, "t2d", torch.ones(65, dtype=torch.bool)),
        (DRAFT_WEIGHTS, "t2d", "found [65]", "expected [64]"),
    ),
    Damage(
        "draft tensor under two names",
        with_tensor(DRAFT_WEIGHTS, "layers.0.hidden_norm.weight", torch.ones(WIDTH)),
        (DRAFT_WEIGHTS, "midlayer.hidden_norm.weight", "layers.0.hidden_norm.weight", "expected one"),
    ),
    Damage(
        "fc of two states",
        change_tensor(DRAFT_WEIGHTS, "fc.weight", lambda tensor: tensor[:, :64].clone()),
        (DRAFT_WEIGHTS, "fc.weight", "found [32, 64]", "[32, 96]", "3 boundaries"),
    ),
    Damage(
        "fc of four states",
        change_tensor(DRAFT_WEIGHTS, "fc.weight", lambda tensor: torch.cat((tensor, tensor[:, :32]), 1)),
        (DRAFT_WEIGHTS, "fc.weight", "found [32, 128]", "[32, 96]", "3 boundaries"),
    ),
    Damage(
        "draft of a target half as wide",
        change_tensor(DRAFT_WEIGHTS, "fc.weight", lambda tensor: tensor[:, :48].clone()),
        (DRAFT_WEIGHTS, "fc.weight", "found [32, 48]", "[32, 96]"),
    ),
]

DRAFT = [
    *broken_folder("draft"),
    *_CONFIG,
    *_LAYER_IDS,
    *broken_weights(DRAFT_WEIGHTS, norm="norm.weight", matrix="midlayer.mlp.up_proj.weight"),
    *_WEIGHTS,
]
