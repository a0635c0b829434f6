"""A draft's config as far as layers go, of any family; whether the draft can be run is not asked here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import InputError, quote
from harness.facts.conventions import newest
from harness.facts.families import FAMILIES, Family, recognise
from harness.facts.keys import EAGLE_SECTION, IDS_KEY, NESTED_IDS_KEY
from harness.facts.layer_ids import Reading, read_ids
from harness.files import is_folder, read_json_object
from harness.pair.config_values import ConfigValues
from harness.pair.draft_flags import DraftFlags, read_flags

__all__ = ["LayerConfig", "read_layer_config"]


@dataclass(frozen=True)
class LayerConfig:
    """A draft's layer ids by their place in its config, with the config itself, which is read from its file once.

    Attributes:
        config: The whole config.
        family: Its kind.
        nested: The ids under `eagle_config`, which SGLang reads; `None` if the config does not have them.
        top: The ids at the top level, which speculators and vLLM read; `None` if the config does not have them.
        hidden_size: The draft's width; `None` if the config does not say it.
        target_hidden_size: Width of one captured boundary, by the config; `None` if it does not say it.
    """

    config: ConfigValues = field(repr=False, compare=False)
    family: Family
    nested: tuple[int, ...] | None
    top: tuple[int, ...] | None
    hidden_size: int | None = None
    target_hidden_size: int | None = None

    @property
    def file(self) -> Path:
        """The file that it was read from."""
        return self.config.file

    @property
    def ids(self) -> tuple[int, ...] | None:
        """The ids, from either place."""
        return self.nested if self.nested is not None else self.top

    def seen_by(self, convention: str) -> tuple[int, ...] | None:
        """Return the ids that an engine looks at: SGLang only at those under `eagle_config`."""
        return self.nested if convention.startswith("sglang") else self.ids

    def overlooked_by(self, convention: str) -> str | None:
        """Return the remark on ids that an engine does not look at; `None` if it sees them or there are none."""
        if self.ids is None or self.seen_by(convention) is not None:
            return None
        return f"{newest(convention)} does not read {self.key}, and takes its default"

    def flags(self, convention: str) -> DraftFlags:
        """Return the config's flags as a convention's trainer or engine reads them.

        Raises:
            InputError: A flag is not usable.
        """
        return read_flags(self.config, convention, self.family)

    @property
    def key(self) -> str | None:
        """The key of the ids; `None` if the config does not have any."""
        if self.nested is not None:
            return NESTED_IDS_KEY
        return IDS_KEY if self.top is not None else None

    @property
    def ids_key(self) -> str:
        """The key of the ids, or the key under which they would be looked for."""
        return self.key or NESTED_IDS_KEY

    def read_trained(self, convention: str, num_layers: int, architecture: str) -> Reading:
        """Return the ids as their writer meant them, from either place.

        Args:
            convention: The writer's convention, such as `specforge`.
            num_layers: The target's number of decoder blocks, N.
            architecture: The target's architecture.

        Raises:
            InputError: The convention is unknown, or an id does not stand for a boundary of this target.
        """
        return self._read(self.ids, convention, num_layers, architecture)

    def read_served(self, convention: str, num_layers: int, architecture: str) -> Reading:
        """Return the ids that an engine looks at, as it takes them; else like `read_trained`."""
        return self._read(self.seen_by(convention), convention, num_layers, architecture)

    def _read(self, ids: tuple[int, ...] | None, convention: str, num_layers: int, architecture: str) -> Reading:
        return read_ids(
            ids, convention, num_layers=num_layers, architecture=architecture, file=self.file, key=self.ids_key
        )


def read_layer_config(path: Path, *, next_step: str = "give a draft's folder or its config.json") -> LayerConfig:
    """Read a draft's config, given as its folder or as the file.

    Args:
        path: The folder or the file.
        next_step: What the user should do if it cannot be read.

    Raises:
        InputError: It is missing, its family is not known or not an EAGLE-3 draft, or its two keys disagree.
    """
    file = path / "config.json" if is_folder(path) else path
    config = ConfigValues(read_json_object(file, what="draft's config", next_step=next_step), file)
    family = _family_of(config.values, config.file)
    nested, top = _layer_ids(config)
    sizes = config if family.section is None else config.section(family.section)
    hidden = sizes.integer("hidden_size") if "hidden_size" in sizes else None
    return LayerConfig(
        config,
        family,
        nested,
        top,
        hidden,
        config.integer("target_hidden_size") if "target_hidden_size" in config else hidden,
    )


def _family_of(raw: Mapping[str, Any], file: Path) -> Family:
    """Return the kind of a draft's config.

    Raises:
        InputError: Its kind is not known, or is not an EAGLE-3 draft of one layer.
    """
    family = recognise(raw)
    if family is None:
        names = raw.get("architectures")
        raise InputError(
            "the config is not of a known kind of draft",
            file=file,
            key="architectures, speculators_model_type, draft_vocab_size",
            found=f"{quote(names)}, {quote(raw.get('speculators_model_type'))}, {quote(raw.get('draft_vocab_size'))}",
            expected=" or ".join(known.mark for known in FAMILIES.values()),
        )
    if family.refused is not None:
        raise InputError(
            family.refused,
            file=file,
            key="architectures",
            found=family.mark,
            expected="a draft of one layer, such as LlamaForCausalLMEagle3",
        )
    return family


def _layer_ids(config: ConfigValues) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """Return the ids under `eagle_config` and those at the top level, each `None` if the config does not have them.

    Raises:
        InputError: Both exist and differ.
    """
    nested, top = config.section(EAGLE_SECTION).integers(IDS_KEY), config.integers(IDS_KEY)
    if nested is not None and top is not None and nested != top:
        raise InputError(
            "two keys give different layer ids",
            file=config.file,
            key=f"{NESTED_IDS_KEY} and {IDS_KEY}",
            found=f"{list(nested)} and {list(top)}",
            expected="one list",
            next_step="keep the list that the draft was trained with, under eagle_config",
        )
    return nested, top
