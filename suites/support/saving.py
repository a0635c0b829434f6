"""A process that saves prepared goldens in turn into one folder, without torch: `python -m suites.support.saving`.

Arguments: the folder to save into, the number of saves, and folders that each contain one golden to save.
"""

from __future__ import annotations

import sys
from pathlib import Path

from harness.golden.schema import GoldenDocument
from harness.golden.store import golden_files, load_golden, save_golden

__all__ = ["prepared"]


def prepared(folder: Path) -> tuple[str, GoldenDocument, bytes]:
    """Read the one golden of a folder: its file name, its document and the bytes of its tensors."""
    (file,) = golden_files(folder)
    document = load_golden(file).document
    return file.name, document, (folder / document.tensors).read_bytes()


def _save(folder: Path, times: int, sources: list[Path]) -> None:
    goldens = [prepared(source) for source in sources]
    for turn in range(times):
        name, document, tensors = goldens[turn % len(goldens)]
        save_golden(folder / name, document, tensors)


if __name__ == "__main__":
    _save(Path(sys.argv[1]), int(sys.argv[2]), [Path(name) for name in sys.argv[3:]])
    assert "torch" not in sys.modules
