"""Checkpoints from a model hub: one commit of a repository, and only the files that are needed of it."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import InputError
from harness.files import is_file, read_json_object

__all__ = ["WEIGHT_NAMES", "Checkpoint", "fetch_descriptions", "fetch_weights"]

WEIGHT_NAMES = ("model.safetensors", "pytorch_model.bin")
"""A checkpoint's weights as transformers names them, the preferred format first; an index of that name has shards."""

# Never code, and no other formats: a repository may hold the same weights as GGUF, ONNX and consolidated files too.
_DESCRIPTIONS = {
    "target": ("*.json", "*.jinja", "*.model", "*.tiktoken", "merges.txt", "vocab.txt"),
    "draft": ("config.json", "generation_config.json", "hf_quant_config.json", "*.index.json"),
}
# Patterns of the hub's client match across folders. Of these, only chat templates are in folders.
_NOT_IN_FOLDERS = ("*/*.json", "*/*.model", "*/*.tiktoken", "*/*.txt", "*/*/*", "trainer_state.json")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Checkpoint:
    """Where a checkpoint is.

    Attributes:
        key: The key of the pair file that names it, `target` or `draft`.
        path: Its folder.
        hub_id: Its repository on the hub, `None` if it is a folder of the user's.
        commit: The commit of that repository.
    """

    key: str
    path: Path
    hub_id: str | None = None
    commit: str | None = None


def fetch_descriptions(pair_file: Path, key: str, hub_id: str, revision: str | None) -> Checkpoint:
    """Download what describes a checkpoint, unless the hub's cache has it: configs, tokenizer, chat template, index.

    Args:
        pair_file: The pair file, for messages.
        key: The key of the pair file that names the checkpoint.
        hub_id: Its repository, owner/name.
        revision: A branch, tag or commit; the default branch if `None`.

    Raises:
        InputError: There is no such repository or revision, or the hub cannot be reached.
    """
    path = _download(pair_file, key, hub_id, revision, _DESCRIPTIONS[key], _NOT_IN_FOLDERS)
    # The cache keeps each commit in a folder of its name.
    return Checkpoint(key, path, hub_id, path.name if _COMMIT.fullmatch(path.name) else revision)


def fetch_weights(pair_file: Path, checkpoint: Checkpoint) -> None:
    """Download a checkpoint's weights, unless they are there; nothing is done for a folder of the user's.

    Pickles are only taken if the repository does not have safetensors.

    Args:
        pair_file: The pair file, for messages.
        checkpoint: From `fetch_descriptions`, whose commit is kept to.

    Raises:
        InputError: The hub cannot be reached, or the weights' index does not name files.
    """
    if checkpoint.hub_id is None:
        return
    for name in WEIGHT_NAMES:
        files = _files_of(checkpoint.path / f"{name}.index.json") or [name]
        if not all(is_file(checkpoint.path / file) for file in files):
            patterns = [glob.escape(file) for file in files]
            _download(pair_file, checkpoint.key, checkpoint.hub_id, checkpoint.commit, patterns, ())
        if is_file(checkpoint.path / files[0]):
            return


def _files_of(index: Path) -> list[str]:
    """Return the files that an index names; an index that cannot be used is refused when the weights are read."""
    if not is_file(index):
        return []
    weight_map = read_json_object(index, what="weights' index").get("weight_map")
    return sorted({str(name) for name in weight_map.values()}) if isinstance(weight_map, dict) else []


def _download(
    pair_file: Path, key: str, hub_id: str, revision: str | None, allow: Sequence[str], ignore: Sequence[str]
) -> Path:
    # Imported here: it takes long to import, and most pairs are on disk.
    import huggingface_hub

    try:
        return Path(
            huggingface_hub.snapshot_download(
                hub_id, revision=revision, allow_patterns=list(allow), ignore_patterns=list(ignore)
            )
        )
    except Exception as error:  # noqa: BLE001 - the hub client raises many kinds; each means that it cannot be had
        raise InputError(
            f"the {key} is neither a folder nor available from the hub",
            file=pair_file,
            key=key,
            found=hub_id if revision is None else f"{hub_id} at {revision}",
            expected="a folder with config.json and safetensors, or a hub id",
            next_step=f"check the path or the id; the hub said: {type(error).__name__} {error}",
        ) from None
