"""The runs of a nightly so far: one line of JSON for each, the newest last."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.errors import InputError
from harness.files import is_file, json_text, parse_json, read_text, write_atomically
from harness.nightly.results import Nightly, NightlyState

__all__ = ["KEPT", "PastRun", "read_history", "write_history"]

# A year of nights.
KEPT = 366


@dataclass(frozen=True)
class PastRun:
    """What is kept of a run.

    Attributes:
        id: The run.
        time: When, as ISO 8601 in UTC.
        commit: The commit that ran.
        url: Where its log is.
        state: What it came to.
        pairs: By pair: `verdict`, `rate`, `error`, `length` and `engine`.
    """

    id: str
    time: str
    commit: str
    url: str
    state: str
    pairs: dict[str, dict[str, Any]]

    @property
    def green(self) -> bool:
        """Whether all was well."""
        return self.state == NightlyState.GREEN


def read_history(file: Path) -> list[PastRun]:
    """Return the runs so far, oldest first; none where the file is not there yet.

    Raises:
        InputError: The file is there and a line of it is not what was written.
    """
    if not is_file(file):
        return []
    runs = []
    for number, line in enumerate(read_text(file, what="history").splitlines(), start=1):
        try:
            runs.append(PastRun(**parse_json(line)))
        except (ValueError, TypeError) as error:
            raise InputError(
                "the line is no run of a nightly",
                file=file,
                key=f"line {number}",
                found=str(error),
                expected="an object as `harness nightly report --history` writes it",
                next_step="take the line out, or begin a new history",
            ) from None
    return runs


def write_history(file: Path, before: list[PastRun], nightly: Nightly) -> None:
    """Write the runs so far and this one; another attempt of the same run takes its place.

    Raises:
        InputError: The file cannot be written.
    """
    run = nightly.run
    pairs = {
        row.pair: {
            "verdict": row.verdict,
            "rate": row.rate,
            "error": row.error,
            "length": row.length,
            "engine": row.engine,
        }
        for row in nightly.pairs
    }
    now = PastRun(run.id, run.time, run.commit, run.url, str(nightly.state), pairs)
    runs = [*(past for past in before if past.id != now.id), now][-KEPT:]
    lines = (json_text(asdict(past), indent=None) for past in runs)
    write_atomically(file, "".join(f"{line}\n" for line in lines).encode())
