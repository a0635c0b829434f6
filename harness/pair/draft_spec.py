"""The description of a draft from its checkpoint's `config.json`, with every flag of an EAGLE-3 draft resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.errors import InputError
from harness.facts.families import Family
from harness.facts.flags import FLAGS
from harness.facts.keys import EAGLE_SECTION
from harness.pair.config_values import ConfigValues
from harness.pair.draft_flags import DraftFlags
from harness.pair.layer_config import LayerConfig, read_layer_config

__all__ = ["CONFIG_HINT", "DraftSpec", "Mla", "describe_draft", "read_draft_spec"]

CONFIG_HINT = "point the pair file's draft key at a checkpoint folder"

_ROPE = (
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "rope_is_neox_style",
)


@dataclass(frozen=True)
class Mla:
    """Sizes of multi-head latent attention, the kind of DeepSeek and Kimi.

    Attributes:
        q_lora_rank: Width of the compressed queries.
        kv_lora_rank: Width of the compressed keys and values.
        qk_nope_head_dim: Width of the part of a head without rotary embedding.
        qk_rope_head_dim: Width of the part of a head with rotary embedding.
        v_head_dim: Width of a head's values.
    """

    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


@dataclass(frozen=True)
class DraftSpec:
    """An EAGLE-3 draft of one decoder layer.

    Attributes:
        path: The checkpoint folder.
        architecture: The first of the config's `architectures`.
        hidden_size: Width of the draft's own states, H.
        target_hidden_size: Width of one captured boundary; `hidden_size` if the config does not say it.
        intermediate_size: Width of the MLP.
        num_heads: Attention heads.
        num_kv_heads: Key and value heads.
        head_dim: Width of a head; `hidden_size / num_heads` only if the config does not say it.
        vocab_size: Size of the target's vocabulary.
        draft_vocab_size: Size of the draft's vocabulary; `vocab_size` if the config does not say it.
        max_positions: Longest sequence, in tokens.
        rms_norm_eps: Epsilon of every RMSNorm.
        hidden_act: The MLP's activation.
        attention_bias: Whether q, k, v and o have biases.
        mlp_bias: Whether the MLP has biases.
        rope: The rope keys of the config as written, such as `rope_theta`, `rope_scaling` and `rope_parameters`.
        layers: The config's layer ids, with the config itself.
        flags: Its flags as the engine that runs it reads them.
        mla: Sizes of its attention if that is latent; `None` if it is a LLaMA layer's.
        tie_word_embeddings: Whether the head is the embedding table.
        unread: Flags that are set, and that the serving engine does not act on: their tensors go unused.
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
    layers: LayerConfig
    flags: DraftFlags
    mla: Mla | None = None
    tie_word_embeddings: bool = False
    unread: tuple[str, ...] = ()

    @property
    def config_file(self) -> Path:
        """The file this was read from."""
        return self.path / "config.json"

    @property
    def ids_key(self) -> str:
        """The key of its layer ids, or the key under which they would be looked for."""
        return self.layers.ids_key

    @property
    def use_aux_hidden_state(self) -> bool:
        """Whether boundaries go through `fc`; if not, the draft reads the state after the final norm as it is."""
        return self.flags.values["use_aux_hidden_state"]

    @property
    def norm_before_fc(self) -> bool:
        """Whether the concatenation is normed before `fc` (`input_norm`)."""
        return self.flags.values["norm_before_fc"]

    @property
    def fc_norm(self) -> bool:
        """Whether each boundary is normed before the concatenation (`fc_norm.{i}`)."""
        return self.flags.values["fc_norm"]

    @property
    def norm_before_residual(self) -> bool:
        """Whether the residual starts from the normed `g`."""
        return self.flags.values["norm_before_residual"]

    @property
    def norm_output(self) -> bool:
        """Whether the state recycled into the next step is the one after the final norm."""
        return self.flags.values["norm_output"]

    def taken_with(self, trained: DraftFlags, served: DraftFlags) -> DraftSpec:
        """Return the draft that an engine makes of this checkpoint.

        Args:
            trained: Its flags as trained.
            served: Its flags as the engine reads them.
        """
        unread = tuple(name for name in trained.differing(served) if FLAGS[name].tensors and not served.values[name])
        return replace(self, flags=served, unread=unread)


def read_draft_spec(path: Path, trained_as: str | None = None) -> DraftSpec:
    """Read a draft's description from its checkpoint folder.

    Args:
        path: The folder.
        trained_as: Its writer, by the convention of its layer ids, whose defaults absent flags take. The likeliest
            writer of its kind of config if `None`.

    Raises:
        InputError: The config is missing, contradicts itself, or does not describe an EAGLE-3 draft of one layer.
    """
    layers = read_layer_config(path, next_step=CONFIG_HINT)
    return describe_draft(layers, layers.flags(trained_as or layers.family.writers[0]))


def describe_draft(layers: LayerConfig, flags: DraftFlags) -> DraftSpec:
    """Return a draft's description from its config, which has been read.

    Args:
        layers: The config.
        flags: Its flags as trained.

    Raises:
        InputError: The config contradicts itself, or does not describe an EAGLE-3 draft of one layer.
    """
    config, family = layers.config, layers.family
    # If a transformer's config is nested, the sizes are in it and the draft's own keys outside.
    sizes = config if family.section is None else config.section(family.section)
    blocks = sizes.integer("num_hidden_layers", 1)
    if blocks != 1:
        raise sizes.error("num_hidden_layers", blocks, "1: an EAGLE-3 draft has one layer")
    _require_plain(config)
    hidden_size = sizes.integer("hidden_size")
    num_heads = sizes.integer("num_attention_heads")
    mla = _mla(sizes) if family.name == "deepseek" else None
    num_kv_heads = sizes.integer("num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise sizes.error("num_key_value_heads", num_kv_heads, f"a divisor of num_attention_heads = {num_heads}")
    vocab_size = sizes.integer("vocab_size")
    draft_vocab_size = config.integer("draft_vocab_size", vocab_size)
    if draft_vocab_size > vocab_size:
        raise config.error("draft_vocab_size", draft_vocab_size, f"at most vocab_size = {vocab_size}")
    return DraftSpec(
        path=config.file.parent,
        architecture=_first_architecture(config.values, family),
        hidden_size=hidden_size,
        target_hidden_size=config.integer("target_hidden_size", hidden_size),
        intermediate_size=sizes.integer("intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=_head_dim(sizes, hidden_size, num_heads)
        if mla is None
        else mla.qk_nope_head_dim + mla.qk_rope_head_dim,
        vocab_size=vocab_size,
        draft_vocab_size=draft_vocab_size,
        max_positions=sizes.integer("max_position_embeddings", 2048),
        rms_norm_eps=sizes.number("rms_norm_eps", 1e-6),
        hidden_act=sizes.text("hidden_act", "silu"),
        attention_bias=sizes.boolean("attention_bias", False),
        mlp_bias=sizes.boolean("mlp_bias", False),
        rope={key: sizes.values[key] for key in _ROPE if sizes.values.get(key) is not None},
        layers=layers,
        flags=flags,
        mla=mla,
        tie_word_embeddings=config.boolean("tie_word_embeddings", False),
    )


def _head_dim(sizes: ConfigValues, hidden_size: int, num_heads: int) -> int:
    if "head_dim" not in sizes and hidden_size % num_heads:
        raise InputError(
            "the key is missing, and hidden_size / num_attention_heads is not an integer",
            file=sizes.file,
            key="head_dim",
            found=f"{hidden_size} / {num_heads}",
            expected="the width of a head",
        )
    head_dim = sizes.integer("head_dim", max(1, hidden_size // num_heads), high=1 << 16)
    if head_dim % 2:
        raise sizes.error("head_dim", head_dim, "an even number: rotary embedding turns the dimensions in pairs")
    return head_dim


def _mla(sizes: ConfigValues) -> Mla:
    # Every rank is required: SGLang's class refuses a draft whose queries are not compressed.
    return Mla(
        q_lora_rank=sizes.integer("q_lora_rank"),
        kv_lora_rank=sizes.integer("kv_lora_rank"),
        qk_nope_head_dim=sizes.integer("qk_nope_head_dim"),
        qk_rope_head_dim=sizes.integer("qk_rope_head_dim"),
        v_head_dim=sizes.integer("v_head_dim"),
    )


# ModelOpt writes the shape of its draft as switches; these are the values of an EAGLE-3 draft.
_PLAIN = {
    "use_input_layernorm_in_first_layer": True,
    "use_last_layernorm": True,
    "use_mtp_layernorm": False,
    "next_layer_regular": True,
}


def _require_plain(config: ConfigValues) -> None:
    """Refuse ModelOpt's other drafts: their tensors have the same names, so they would load and be run wrongly."""
    nested = config.section(EAGLE_SECTION)
    for name, plain in _PLAIN.items():
        if nested.boolean(name, plain) is not plain:
            raise nested.error(name, not plain, f"{plain}: the draft is of another shape than EAGLE-3's")
    at_once = nested.integer("parallel_draft_step", 1)
    if at_once != 1:
        raise nested.error("parallel_draft_step", at_once, "1: an EAGLE-3 draft proposes one token at a time")


def _first_architecture(raw: Mapping[str, Any], family: Family) -> str:
    names = raw.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else family.name
