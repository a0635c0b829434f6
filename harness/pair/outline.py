"""A pair file with the configs that it points to, before it is required that they can be run together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from harness.pair.builtin import find_pair
from harness.pair.draft_spec import CONFIG_HINT
from harness.pair.hub import Checkpoint
from harness.pair.layer_config import LayerConfig, read_layer_config
from harness.pair.locate import find_checkpoint
from harness.pair.pairfile import PairFile, read_pair_file
from harness.pair.target_spec import TargetSpec, read_target_spec
from harness.pair.wiring import Readings, read_both, require_writer

__all__ = ["PairOutline", "read_outline"]


@dataclass(frozen=True)
class PairOutline:
    """A pair file with its configs, each read once.

    Attributes:
        file: The pair file.
        settings: Its content.
        target: The target's shape.
        layers: The draft's config.
        checkpoints: Where target and draft are, by `target` and `draft`.
    """

    file: Path
    settings: PairFile
    target: TargetSpec
    layers: LayerConfig
    checkpoints: Mapping[str, Checkpoint]

    @property
    def trained_as(self) -> str:
        """The convention of the draft's writer.

        Raises:
            InputError: The pair file does not say it.
        """
        return require_writer(self.settings.trained_as, self.layers.family, self.target, file=self.file)

    def readings(self) -> Readings:
        """Return the draft's config as trained and as served.

        Raises:
            InputError: The pair file does not say who wrote the layer ids, or a flag of the config is not usable.
        """
        return read_both(
            self.layers, self.target, file=self.file, trained_as=self.trained_as, served_by=self.settings.served_by
        )

    def served_as(self, convention: str) -> PairOutline:
        """Return the outline with another engine that serves the pair, such as `sglang==0.5.23`."""
        return replace(self, settings=self.settings.model_copy(update={"served_by": convention}))


def read_outline(name_or_path: str | Path) -> PairOutline:
    """Read a pair file and the configs it points to.

    Args:
        name_or_path: Path of a pair file, or the name of a built-in pair.

    Raises:
        InputError: A file cannot be read or is not valid.
    """
    file = find_pair(str(name_or_path))
    settings = read_pair_file(file)
    made_by = settings.target_made_by
    target = find_checkpoint(file, "target", settings.target, settings.target_revision, made_by=made_by)
    spec = read_target_spec(target.path)
    draft = find_checkpoint(file, "draft", settings.draft, settings.draft_revision)
    layers = read_layer_config(draft.path, next_step=CONFIG_HINT)
    return PairOutline(file, settings, spec, layers, {"target": target, "draft": draft})
