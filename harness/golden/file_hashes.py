"""Hashes of large files, computed once: a checkpoint of hundreds of gigabytes is not read again for every check.

A hash is remembered in the user's cache by everything that changes with a file's content: its path, size, inode, and
the times of its last change. A cache that cannot be read or written changes nothing but the time it takes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from pathlib import Path

from harness.files import cache_folder, hash_file, parse_json, read_text, write_atomically

__all__ = ["remembered_hash"]

# Below that, hashing costs less than looking it up.
_WORTH = 1 << 20
# A file that was changed a moment ago can be changed again within the resolution of its times.
_SETTLED = 2_000_000_000
_DIGITS = re.compile(r"[0-9a-f]{64}")


def remembered_hash(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, as hexadecimal digits: from the cache if the file has not been touched.

    Raises:
        OSError: The file cannot be read.
    """
    before = _state(path)
    if before["size"] < _WORTH:
        return hash_file(path)
    place = cache_folder() / "hashes" / f"{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()}.json"
    known = _read(place)
    digits = known.pop("sha256", None)
    if known == before and isinstance(digits, str) and _DIGITS.fullmatch(digits):
        return digits
    digits = hash_file(path)
    if _state(path) == before and time.time_ns() - max(before["mtime"], before["ctime"]) > _SETTLED:
        # Whatever keeps the cache from being written, such as a full disk, is no reason to fail.
        with contextlib.suppress(Exception):
            write_atomically(place, json.dumps({**before, "sha256": digits}).encode())
    return digits


def _state(path: Path) -> dict[str, int]:
    stat = path.stat()
    return {
        "size": stat.st_size,
        "mtime": stat.st_mtime_ns,
        "ctime": stat.st_ctime_ns,
        "inode": stat.st_ino,
        "device": stat.st_dev,
    }


def _read(place: Path) -> dict[str, object]:
    try:
        found = parse_json(read_text(place, what="remembered hash"))
    except Exception:  # noqa: BLE001 - a cache that cannot be read is as good as none
        return {}
    return dict(found) if isinstance(found, dict) else {}
