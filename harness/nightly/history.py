"""The history of a nightly: one line of JSON for each run, the newest last."""

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
    """One run in the history.

    Attributes:
        id: Identifies the run; its second attempt has the same id.
        time: When the run was summarised, in UTC.
        commit: The commit that was tested; empty if unknown.
        url: Address of the run's log; empty if unknown.
        state: A `NightlyState`.
        pairs: Each pair's `verdict`, `rate`, `error`, `length` and `engine`, by the pair's name, with its
            file if several files of the run have that name.
    """

    id: str
    time: str
    commit: str
    url: str
    state: str
    pairs: dict[str, dict[str, Any]]

    @property
    def green(self) -> bool:
        """Whether everything was checked and passed."""
        return self.state == NightlyState.GREEN


def read_history(file: Path) -> list[PastRun]:
    """Return the runs in a history file, oldest first; empty if the file does not exist yet.

    Raises:
        InputError: A line of the file is not a run.
    """
    if not is_file(file):
        return []
    runs = []
    for number, line in enumerate(read_text(file, what="history").splitlines(), start=1):
        try:
            runs.append(PastRun(**parse_json(line)))
        except (ValueError, TypeError) as error:
            raise InputError(
                "the line is not a run of a nightly",
                file=file,
                key=f"line {number}",
                found=str(error),
                expected="an object that `harness nightly report --history` has written",
                next_step="remove the line, or start a new history file",
            ) from None
    return runs


def write_history(file: Path, before: list[PastRun], nightly: Nightly) -> None:
    """Write a history with this run added; it replaces an earlier attempt of the same run.

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
