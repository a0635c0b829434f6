"""What a draft checkpoint's `config.json` says, with every flag of an EAGLE-3 draft resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import InputError
from harness.facts.families import FAMILIES, Family
from harness.files import read_json_object
from harness.pair.config_values import ConfigValues
from harness.pair.layer_config import IDS_KEY, family_of, layer_ids

__all__ = ["RUN_FAMILIES", "DraftSpec", "read_draft_spec"]

# The kinds of config whose drafts are one LLaMA layer.
RUN_FAMILIES = ("llama-eagle3", "eagle", "angelslim", "speculators")
_ROPE = ("rope_theta", "rope_scaling", "rope_parameters")


@dataclass(frozen=True)
class DraftSpec:
    """An EAGLE-3 draft of one LLaMA layer.

    Attributes:
        path: The checkpoint folder.
        architecture: The first of the config's `architectures`.
        hidden_size: Width of the draft's own states, H.
        target_hidden_size: Width of one captured boundary; `hidden_size` where the config has none.
        intermediate_size: Width of the MLP.
        num_heads: Attention heads.
        num_kv_heads: Key and value heads.
        head_dim: Width of a head; `hidden_size / num_heads` only where the config has none.
        vocab_size: Size of the target's vocabulary.
        draft_vocab_size: Size of the draft's; `vocab_size` where the config has none.
        max_positions: Longest sequence, in tokens.
        rms_norm_eps: Epsilon of every RMSNorm.
        hidden_act: The MLP's activation.
        attention_bias: Whether q, k, v and o have biases.
        mlp_bias: Whether the MLP has biases.
        rope: The rope keys of the config as written (`rope_theta`, `rope_scaling`, `rope_parameters`).
        layer_ids: The ids as written, `None` where the config has none.
        ids_key: The key they were found under, or would be looked for.
        use_aux_hidden_state: Whether three boundaries go through `fc`; otherwise the final state is read as it is.
        norm_before_fc: RMSNorm over the concatenation before `fc` (`input_norm`).
        fc_norm: RMSNorm of each boundary before the concatenation (`fc_norm.{i}`).
        norm_before_residual: The residual starts from the normed `g`.
        norm_output: The recycled state is the one after the final norm.
        tie_word_embeddings: The head is the embedding table.
        resolved: For every flag that the config lacks, the value taken and why.
    """

    path: Path
    architecture: str
    hidden_size: int
    target_hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    max_positions: int
    rms_norm_eps: float
    hidden_act: str
    attention_bias: bool
    mlp_bias: bool
    rope: Mapping[str, Any]
    layer_ids: tuple[int, ...] | None
    ids_key: str
    use_aux_hidden_state: bool = True
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_before_residual: bool = False
    norm_output: bool = False
    tie_word_embeddings: bool = False
    resolved: Mapping[str, str] = field(default_factory=dict)

    @property
    def config_file(self) -> Path:
        """The file this was read from."""
        return self.path / "config.json"


def read_draft_spec(path: Path) -> DraftSpec:
    """Read a draft's description from its checkpoint folder.

    Raises:
        InputError: The config is missing, contradicts itself, or describes a draft that cannot be run here.
    """
    file = path / "config.json"
    raw = read_json_object(
        file, what="draft's config", next_step="point the pair file's draft key at a checkpoint folder"
    )
    config = ConfigValues(raw, file)
    nested = config.section("eagle_config")
    family = family_of(raw, file)
    # Where a transformer's config is nested, the sizes stand in it and the draft's own keys outside.
    sizes = config if family.section is None else config.section(family.section)
    _require_one_llama_layer(family, sizes, file)
    hidden_size = sizes.integer("hidden_size")
    num_heads = sizes.integer("num_attention_heads")
    if "head_dim" not in sizes and hidden_size % num_heads:
        raise InputError(
            "the key is missing and hidden_size / num_attention_heads is no integer",
            file=file,
            key="head_dim",
            found=f"{hidden_size} / {num_heads}",
            expected="the width of a head",
        )
    head_dim = sizes.integer("head_dim", max(1, hidden_size // num_heads), high=1 << 16)
    if head_dim % 2:
        raise sizes.error("head_dim", head_dim, "an even number: rotary embedding turns the dimensions in pairs")
    num_kv_heads = sizes.integer("num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise sizes.error("num_key_value_heads", num_kv_heads, f"a divisor of num_attention_heads = {num_heads}")
    vocab_size = sizes.integer("vocab_size")
    draft_vocab_size = config.integer("draft_vocab_size", vocab_size)
    if draft_vocab_size > vocab_size:
        raise config.error("draft_vocab_size", draft_vocab_size, f"at most vocab_size = {vocab_size}")
    inner, outer = layer_ids(config)
    flags, resolved = _flags(config, nested, family)
    return DraftSpec(
        path=path,
        architecture=_first_architecture(raw, family),
        hidden_size=hidden_size,
        target_hidden_size=config.integer("target_hidden_size", hidden_size),
        intermediate_size=sizes.integer("intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        vocab_size=vocab_size,
        draft_vocab_size=draft_vocab_size,
        max_positions=sizes.integer("max_position_embeddings", 2048),
        rms_norm_eps=sizes.number("rms_norm_eps", 1e-6),
        hidden_act=sizes.text("hidden_act", "silu"),
        attention_bias=sizes.boolean("attention_bias", False),
        mlp_bias=sizes.boolean("mlp_bias", False),
        rope={key: sizes.values[key] for key in _ROPE if sizes.values.get(key) is not None},
        layer_ids=inner if inner is not None else outer,
        ids_key=IDS_KEY if inner is None and outer is not None else f"eagle_config.{IDS_KEY}",
        tie_word_embeddings=config.boolean("tie_word_embeddings", False),
        resolved=resolved,
        **flags,
    )


def _require_one_llama_layer(family: Family, sizes: ConfigValues, file: Path) -> None:
    """Refuse kinds whose draft is no single LLaMA layer, which is what can be run."""
    if family.name not in RUN_FAMILIES:
        raise InputError(
            "this kind of draft cannot be run; harness layers and harness trace --static read it",
            file=file,
            key="architectures",
            found=family.mark,
            expected=" or ".join(FAMILIES[name].mark for name in RUN_FAMILIES),
        )
    layers = sizes.integer("num_hidden_layers", 1)
    if layers != 1:
        raise sizes.error("num_hidden_layers", layers, "1: an EAGLE-3 draft has one layer")


_FLAGS = {
    "use_aux_hidden_state": True,
    "norm_before_fc": False,
    "fc_norm": False,
    "norm_before_residual": False,
    "norm_output": False,
}


def _first_architecture(raw: Mapping[str, Any], family: Family) -> str:
    names = raw.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else family.name


def _flags(config: ConfigValues, nested: ConfigValues, family: Family) -> tuple[dict[str, bool], dict[str, str]]:
    who = "speculators writes them" if family.name == "speculators" else "SGLang and vLLM read this architecture"
    flags: dict[str, bool] = {}
    resolved: dict[str, str] = {}
    for name, default in _FLAGS.items():
        if name in config and name in nested and config.boolean(name) != nested.boolean(name):
            raise InputError(
                "two keys disagree",
                file=config.file,
                key=f"{name} and eagle_config.{name}",
                found=f"{config.boolean(name)} and {nested.boolean(name)}",
                expected="one value",
            )
        source = nested if name in nested else config
        if name not in source:
            resolved[name] = f"absent: {default}, as {who}"
        flags[name] = source.boolean(name, default)
    if flags["norm_before_fc"] and flags["fc_norm"]:
        raise InputError(
            "norm_before_fc and fc_norm exclude each other",
            file=config.file,
            key="norm_before_fc and fc_norm",
            found="both true",
            expected="at most one of them true",
        )
    return flags, resolved
