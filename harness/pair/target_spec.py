"""The shape of a target, from its `config.json`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.files import read_json_object
from harness.pair.config_values import ConfigValues
from harness.pair.inert import require_inert

__all__ = ["TargetSpec", "read_target_spec"]

# Deeper than any model. A target is built block by block before its weights are looked at: without a limit, a typo in
# the config would keep that going for hours.
_MOST_LAYERS = 4096


@dataclass(frozen=True)
class TargetSpec:
    """Shape of a target.

    Attributes:
        path: The checkpoint folder.
        architecture: The first of the config's `architectures`.
        num_layers: Decoder blocks, N.
        hidden_size: Width H of a hidden state.
        vocab_size: Size of the vocabulary.
        max_positions: Longest sequence the config allows, in tokens.
        eos_ids: Ids that end a text.
    """

    path: Path
    architecture: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    max_positions: int
    eos_ids: tuple[int, ...]


def read_target_spec(
    path: Path, *, next_step: str = "point the pair file's target key at a checkpoint folder"
) -> TargetSpec:
    """Read a target's shape from its folder; of a multimodal wrapper, the shape of its text model.

    Args:
        path: The checkpoint's folder.
        next_step: The user's next step if the config cannot be read.

    Raises:
        InputError: The config is missing, unreadable or lacks a key, or names code to be fetched from a hub.
    """
    file = path / "config.json"
    raw = read_json_object(file, what="target's config", next_step=next_step)
    require_inert(raw, file)
    outer = ConfigValues(raw, file)
    names = raw.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise outer.error("architectures", names, "a list with the model class")
    config = outer.section("text_config") if "text_config" in outer else outer
    return TargetSpec(
        path=path,
        architecture=names[0],
        num_layers=config.integer("num_hidden_layers", high=_MOST_LAYERS),
        hidden_size=config.integer("hidden_size"),
        vocab_size=config.integer("vocab_size"),
        max_positions=config.integer("max_position_embeddings", 1 << 30),
        eos_ids=_eos_ids(path, outer, config),
    )


def _eos_ids(path: Path, outer: ConfigValues, config: ConfigValues) -> tuple[int, ...]:
    """Return the ids that end a text; as in transformers, the generation config takes precedence over the model's."""
    sources = [config, outer]
    generation = path / "generation_config.json"
    if generation.exists():
        sources.insert(0, ConfigValues(read_json_object(generation, what="generation config"), generation))
    for source in sources:
        value = source.values.get("eos_token_id")
        if isinstance(value, int) and not isinstance(value, bool):
            return (value,)
        if value is not None:
            return source.integers("eos_token_id") or ()
    return ()
