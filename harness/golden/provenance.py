"""Where a golden comes from: file hashes, machine, commit. They explain a difference and never decide one."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

from harness.files import hash_file, is_file
from harness.golden.file_hashes import remembered_hash
from harness.golden.store import Golden
from harness.pair.locate import relative_path
from harness.pair.pair import Pair

__all__ = ["changed_files", "changed_versions", "commit_of", "machine_info", "pair_hashes"]


# What a measurement reads of a checkpoint's folder, apart from its weights: configs, tokenizer, chat template.
_READ_SUFFIXES = (".json", ".jinja", ".model", ".tiktoken")
_READ_NAMES = ("merges.txt", "vocab.txt")
_WEIGHT_SUFFIXES = (".safetensors", ".bin")


def pair_hashes(pair: Pair) -> dict[str, str]:
    """Return the SHA-256 of each file that a pair's measurement depends on, by names without a path of this machine.

    Weights are not among them if the pair is measured on a server, which has its own.

    Raises:
        InputError: Weights that are on the hub cannot be had.
    """
    if pair.runs_weights:
        pair.fetch_weights()
    result = {}
    for name, folder in (("target", pair.target.path), ("draft", pair.draft.path)):
        for file in _read_files(folder):
            if not pair.runs_weights and _is_weight(file.name):
                continue
            # Every file that the measurement needs has been read by now: one that cannot be read is not needed.
            with contextlib.suppress(OSError):
                result[f"{name}/{file.name}"] = remembered_hash(file)
    if pair.settings.chat_template not in ("target", "none"):
        result["chat_template"] = hash_file(relative_path(pair.file, "chat_template", pair.settings.chat_template))
    result["prompts"] = hash_file(pair.prompts_file)
    return result


def _is_weight(name: str) -> bool:
    return name.endswith(_WEIGHT_SUFFIXES)


def _read_files(folder: Path) -> list[Path]:
    """Return the files of a checkpoint's folder that a measurement reads, sorted; other formats are left alone."""
    files = [file for file in sorted(folder.iterdir()) if is_file(file)]
    # As transformers chooses: pickles are only read if there are no safetensors.
    weights = [file for file in files if file.suffix == ".safetensors"]
    weights = weights or [file for file in files if file.name.startswith("pytorch_model") and file.suffix == ".bin"]
    return [file for file in files if file in weights or file.suffix in _READ_SUFFIXES or file.name in _READ_NAMES]


def changed_files(pair: Pair, golden: Golden) -> list[str]:
    """Return a sentence for each of the pair's files that is not as it was when the golden was recorded.

    Weights are compared only if both the golden's engine and the pair's read them from files.
    """
    document = golden.document
    now, then = pair_hashes(pair), dict(document.hashes)
    if not (pair.runs_weights and document.engine != "server"):
        now, then = ({name: value for name, value in side.items() if not _is_weight(name)} for side in (now, then))
    changes = [
        f"{name} has changed since the golden was recorded" if name in now else f"{name} is absent now"
        for name, value in then.items()
        if now.get(name) != value
    ]
    # A golden of version 1 does not say whether files of the other kinds were there.
    said = (".json", ".safetensors") if document.schema_version == 1 else (*_READ_SUFFIXES, *_WEIGHT_SUFFIXES)
    new = [name for name in now if name not in then and name.endswith((*said, *_READ_NAMES))]
    moved = [
        f"the {name} is at commit {pair.revisions[name]} of the hub, the golden was recorded at {commit}"
        for name, commit in document.revisions.items()
        if pair.revisions.get(name, commit) != commit
    ]
    return [*moved, *changes, *(f"{name} was absent when the golden was recorded" for name in new)]


def changed_versions(versions: Mapping[str, str], golden: Golden) -> list[str]:
    """Return a sentence if libraries had other versions when the golden was recorded; no sentence if none had.

    Args:
        versions: The run's library versions. Only those that both sides know are compared.
        golden: The golden that the run is compared with.
    """
    then = golden.document.versions
    other = [name for name in _LIBRARIES if name in versions and name in then and versions[name] != then[name]]
    if not other:
        return []
    sides = [", ".join(f"{name} {side[name]}" for name in other) for side in (then, versions)]
    return [f"the golden was recorded with {sides[0]}, this run has {sides[1]}"]


# The libraries that compute; Python itself does not.
_LIBRARIES = ("torch", "transformers", "tokenizers", "sglang", "vllm")


def machine_info() -> dict[str, str]:
    """Return properties that tell machines apart, without host or user names."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": str(os.cpu_count()),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def commit_of(folder: Path) -> str | None:
    """Return the commit that is checked out in a folder's repository; `None` outside a repository.

    The repository's files are read, and git is never run: a repository can name programs that git starts, such as
    `core.fsmonitor`. Whether files have changed since the commit is therefore not known; the hashes of the pair's own
    files are recorded next to it.

    Source: `gitrepository-layout(5)`.
    """
    for place in (folder.resolve(), *folder.resolve().parents):
        if os.path.lexists(place / ".git"):
            return _checked_out(place / ".git")
    return None


def _checked_out(entry: Path) -> str | None:
    """Return the commit of a repository; `entry` is its folder, or a worktree's file that names one."""
    home = entry
    if is_file(entry):
        named = _git_text(entry)
        if not named.startswith(_NAMES_FOLDER):
            return None
        home = entry.parent / named.removeprefix(_NAMES_FOLDER).strip()
    # A worktree has its own HEAD, and shares the branches of the repository that it belongs to.
    shared = home / (_git_text(home / "commondir").strip() or ".")
    value = _git_text(home / "HEAD").strip()
    for _ in range(_MOST_REFERENCES):
        if _COMMIT.fullmatch(value):
            return value
        reference = _REFERENCE.fullmatch(value)
        if reference is None or ".." in value:
            return None
        name = reference[1]
        value = _git_text(home / name).strip() or _git_text(shared / name).strip() or _packed(shared, name)
    return None


_NAMES_FOLDER = "gitdir:"
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REFERENCE = re.compile(r"ref:\s*(refs/[^\s\0]+)")
# As deep as git follows references to references.
_MOST_REFERENCES = 5
# A list of references is far shorter, and a file that never ends must not be read whole.
_MOST_CHARACTERS = 1 << 26


def _packed(shared: Path, name: str) -> str:
    lines = (line.split() for line in _git_text(shared / "packed-refs").splitlines())
    return next((parts[0] for parts in lines if len(parts) == 2 and parts[1] == name), "")


def _git_text(file: Path) -> str:
    """Return a file's text; empty if it cannot be read."""
    if not is_file(file):
        return ""
    try:
        with file.open(encoding="utf-8", errors="replace") as stream:
            return stream.read(_MOST_CHARACTERS)
    except (OSError, ValueError):
        return ""
