"""A fake model hub on the local disk, in place of `huggingface_hub.snapshot_download`: no network, real patterns.

It lays its cache out as the real client does, models--OWNER--NAME/snapshots/COMMIT with links into blobs, and matches
patterns by that client's own function. Each repository has commits, and names for them that may move.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from huggingface_hub.utils._paths import filter_repo_objects

__all__ = ["FakeHub"]


@dataclass
class FakeHub:
    """Repositories and what was downloaded of them.

    Attributes:
        root: Where repositories and cache are.
        names: The commit that each name of a repository means, by repository id and name.
        downloaded: The files that were not in the cache yet, in order, as `owner/name:file`.
        asked: How often the hub was asked.
    """

    root: Path
    names: dict[tuple[str, str], str] = field(default_factory=dict)
    downloaded: list[str] = field(default_factory=list)
    asked: int = 0

    def push(self, hub_id: str, folder: Path, name: str = "main") -> str:
        """Add a commit with a folder's files to a repository, let a name mean it, and return it."""
        digest = hashlib.sha1(usedforsecurity=False)
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            digest.update(str(file.relative_to(folder)).encode() + file.read_bytes())
        commit = digest.hexdigest()
        shutil.copytree(folder, self.root / "hub" / hub_id / commit, dirs_exist_ok=True)
        self.names[hub_id, name] = commit
        return commit

    def snapshot_download(
        self,
        hub_id: str,
        *,
        revision: str | None = None,
        allow_patterns: list[str] | None = None,
        ignore_patterns: list[str] | None = None,
    ) -> str:
        """Stand in for the function of this name."""
        self.asked += 1
        commit = self.names.get((hub_id, revision or "main"), revision or "")
        source = self.root / "hub" / hub_id / commit
        if not commit or not source.is_dir():
            raise FileNotFoundError(f"404: {hub_id} does not have {revision or 'main'}")
        model = self.root / "cache" / f"models--{hub_id.replace('/', '--')}"
        snapshot = model / "snapshots" / commit
        snapshot.mkdir(parents=True, exist_ok=True)
        (model / "blobs").mkdir(exist_ok=True)
        files = sorted(str(path.relative_to(source)) for path in source.rglob("*") if path.is_file())
        for name in filter_repo_objects(files, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns):
            link = snapshot / name
            if link.exists():
                continue
            self.downloaded.append(f"{hub_id}:{name}")
            blob = model / "blobs" / hashlib.sha256((source / name).read_bytes()).hexdigest()
            shutil.copy(source / name, blob)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(blob)
        return str(snapshot)
