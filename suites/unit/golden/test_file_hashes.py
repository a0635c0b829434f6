"""Large files are hashed once, and again whenever they may have changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.files import hash_file
from harness.golden import file_hashes
from harness.golden.file_hashes import remembered_hash

LONG_AGO = 1_700_000_000


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is large enough to be remembered, and was changed long ago as far as the cache is concerned."""
    monkeypatch.setattr(file_hashes, "_SETTLED", -1)
    file = tmp_path / "model.safetensors"
    file.write_bytes(os.urandom(1 << 20) * 2)
    return file


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are read to be hashed, in order."""
    files: list[Path] = []

    def counting(path: Path) -> str:
        files.append(path)
        return hash_file(path)

    monkeypatch.setattr(file_hashes, "hash_file", counting)
    return files


def test_a_file_that_was_not_touched_is_hashed_once(weights: Path, hashed: list[Path]) -> None:
    assert remembered_hash(weights) == remembered_hash(weights) == hash_file(weights)
    assert len(hashed) == 1


@pytest.mark.parametrize("change", ["content", "content and time put back", "another file in its place", "size"])
def test_a_file_that_may_have_changed_is_hashed_again(weights: Path, hashed: list[Path], change: str) -> None:
    os.utime(weights, (LONG_AGO, LONG_AGO))
    before = remembered_hash(weights)
    data = bytearray(weights.read_bytes())
    data[5] ^= 1
    if change == "another file in its place":
        other = weights.with_name("other")
        other.write_bytes(bytes(data))
        os.utime(other, (LONG_AGO, LONG_AGO))
        other.replace(weights)
    else:
        weights.write_bytes(bytes(data) + (b"x" if change == "size" else b""))
        if change.endswith("put back"):
            os.utime(weights, (LONG_AGO, LONG_AGO))
    assert remembered_hash(weights) == hash_file(weights) != before
    assert len(hashed) == 2


def test_a_file_that_changed_a_moment_ago_is_not_remembered(
    weights: Path, hashed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_hashes, "_SETTLED", 3600 * 10**9)
    remembered_hash(weights)
    remembered_hash(weights)
    assert len(hashed) == 2


def test_a_small_file_is_not_worth_a_cache(tmp_path: Path, hashed: list[Path]) -> None:
    file = tmp_path / "config.json"
    file.write_text("{}")
    remembered_hash(file)
    assert not (Path(os.environ["HARNESS_CACHE"]) / "hashes").exists()
    assert hashed == [file]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"sha256": 7}', b"\xff\xfe", b"null"])
def test_a_broken_cache_is_ignored(weights: Path, hashed: list[Path], content: bytes) -> None:
    expected = remembered_hash(weights)
    (entry,) = (Path(os.environ["HARNESS_CACHE"]) / "hashes").iterdir()
    entry.write_bytes(content)
    assert remembered_hash(weights) == expected
    assert len(hashed) == 2
    # It is whole again.
    assert remembered_hash(weights) == expected
    assert len(hashed) == 2


def test_a_cache_that_cannot_be_written_is_ignored(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "file" / "cache"))
    assert remembered_hash(weights) == hash_file(weights)
