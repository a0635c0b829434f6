"""What the hooks wrote: each request's verify rounds in order, and what the target captures."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import EngineError

__all__ = ["Capture", "Round", "read_capture", "read_rounds", "read_state_files"]


@dataclass(frozen=True)
class Round:
    """One verify round of one request.

    Attributes:
        proposed: The tokens proposed; of a tree, its nodes.
        predicted: The target's choice after the last known token and after each token proposed: one more.
        accepted: How many of the proposed were accepted.
    """

    proposed: tuple[int, ...]
    predicted: tuple[int, ...]
    accepted: int


@dataclass(frozen=True)
class Capture:
    """What SGLang set the target to capture.

    Attributes:
        model: The target's class.
        ids: The ids that it read from the draft's config, `None` for its defaults.
        layers: The boundaries that the class' setter made of them; `None` if the class does not keep a list.
    """

    model: str
    ids: tuple[int, ...] | None
    layers: tuple[int, ...] | None


def read_rounds(folder: Path) -> dict[str, list[Round]]:
    """Return the rounds of each request so far, in order."""
    rounds = defaultdict(list)
    for line in _lines(folder, "round"):
        for request, candidates, predicted, accepted in line["rows"]:
            rounds[request].append(Round(tuple(candidates[1:]), tuple(predicted), accepted))
    return dict(rounds)


def read_capture(folder: Path) -> Capture:
    """Return what the target captures.

    Raises:
        EngineError: The hooks wrote nothing.
    """
    for line in _lines(folder, "capture"):
        return Capture(line["model"], _maybe_tuple(line["ids"]), _maybe_tuple(line["layers_to_capture"]))
    raise EngineError(
        "the harness' hooks do not run in SGLang's processes, so its rounds are not known; its log says which plugins "
        "it loads and which hooks it cannot apply"
    )


def read_state_files(folder: Path) -> list[tuple[str, Path]]:
    """Return the forward mode and the file of each call of the draft whose states were written, in order."""
    return [(line["mode"], folder / line["file"]) for line in _lines(folder, "states")]


def _maybe_tuple(values: list[int] | None) -> tuple[int, ...] | None:
    return None if values is None else tuple(values)


def _lines(folder: Path, event: str) -> Iterator[dict[str, Any]]:
    """Yield the lines of one kind that the first rank wrote: the others see the same."""
    for file in sorted(folder.glob("watch-*.jsonl")):
        for text in file.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            if line["rank"] == 0 and line["event"] == event:
                yield line
