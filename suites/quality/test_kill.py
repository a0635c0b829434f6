"""`harness record` killed at any moment: the old golden or the new one is whole, and the next record cleans up."""

from __future__ import annotations

import itertools
import random
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.golden.schema import Totals
from harness.golden.store import Golden, load_golden
from suites.support.damage import GOLDEN, replace_text, snapshot
from suites.support.forking import Server, Task, forking

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process that has loaded torch cannot fork")

KILLS, KILLS_WHILE_WRITING = 100, 30
# Other texts, so that tensors are replaced too; the same text again, so that they stay.
LENGTHS = (22, 23, 24)
# How many kills go over a folder before an ordinary record has to clean it.
_BETWEEN = 10


@dataclass(frozen=True)
class _Undisturbed:
    """What a record does that nobody kills.

    Attributes:
        seconds: How long it takes.
        writing: How long it takes to write.
        totals: What it finds, by `max_new_tokens`.
        tensors: The name of the tensors it writes, by the same.
    """

    seconds: float
    writing: float
    totals: dict[int, Totals]
    tensors: dict[int, str]


def _golden(folder: Path) -> Golden:
    return load_golden(folder / GOLDEN)


def _length(golden: Golden) -> int:
    length = golden.document.decode["max_new_tokens"]
    assert isinstance(length, int)
    return length


def _record(folder: Path, reason: str) -> list[str]:
    return ["record", str(folder / "random.pair.toml"), "--reason", reason]


def _ask_for(folder: Path, length: int) -> None:
    """Have the pair file ask for texts of another length."""
    file = folder / "random.pair.toml"
    before = next(line for line in file.read_text().splitlines() if line.startswith("max_new_tokens"))
    replace_text(file, before, f"max_new_tokens = {length}")


@pytest.fixture(scope="module")
def server(recorded_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("to-load") / "pair"
    shutil.copytree(recorded_folder, folder)
    with forking(*_record(folder, "to load everything")) as running:
        yield running


@pytest.fixture(scope="module")
def undisturbed(server: Server, recorded_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> _Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed") / "pair"
    shutil.copytree(recorded_folder, folder)
    seconds, writing = [], []
    totals, tensors = {}, {}
    for length in LENGTHS:
        _ask_for(folder, length)
        ending = server.run(Task(_record(folder, "undisturbed")))
        assert (ending.status, ending.wrote is not None) == (0, True), ending.output
        seconds.append(ending.seconds)
        writing.append(ending.wrote or 0.0)
        document = _golden(folder).document
        totals[length], tensors[length] = document.totals, document.tensors
    assert len(set(tensors.values())) == len(LENGTHS)
    return _Undisturbed(sorted(seconds)[1], sorted(writing)[1], totals, tensors)


class _Folder:
    """A recorded pair that is recorded again and again, mostly in vain."""

    def __init__(self, folder: Path, server: Server, undisturbed: _Undisturbed) -> None:
        self.folder = folder
        self.server = server
        self.undisturbed = undisturbed
        self.outcomes: Counter[str] = Counter()
        self.leftovers: set[str] = set()

    def kill(self, length: int, reason: str, moment: float, *, writing: bool) -> None:
        """Have a child record the pair and kill it; what it leaves must be whole."""
        _ask_for(self.folder, length)
        before, old = snapshot(self.folder), _golden(self.folder)
        ending = self.server.run(Task(_record(self.folder, reason), moment, writing))
        assert ending.status in (0, -signal.SIGKILL), ending.output
        after, new = snapshot(self.folder), _golden(self.folder)
        replaced = after[GOLDEN] != before[GOLDEN]
        self.outcomes["ended" if ending.status == 0 else "new" if replaced else "old"] += 1
        assert replaced or ending.status != 0
        if not replaced:
            tensors = str(Path(GOLDEN).parent / old.document.tensors)
            assert after[tensors] == before[tensors] is not None
        else:
            assert (new.document.reason, _length(new)) == (reason, length)
            assert len(new.document.history) == len(old.document.history) + 1
        self.require_right(new)
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        assert {str(Path(name).parent) for name in changed} <= {str(Path(GOLDEN).parent)}
        self.leftovers |= {Path(name).suffix for name in self.left_over(new)}

    def require_right(self, golden: Golden) -> None:
        """Compare what a golden says with what an undisturbed record found."""
        assert golden.document.totals == self.undisturbed.totals[_length(golden)]
        assert golden.document.tensors == self.undisturbed.tensors[_length(golden)]

    def left_over(self, golden: Golden) -> set[str]:
        """Return the names of the golden's folder that belong to no golden; the lock stays there."""
        belong = {golden.file.name, golden.document.tensors, ".lock"}
        return {file.name for file in golden.file.parent.iterdir()} - belong

    def clean(self, length: int) -> None:
        """Record undisturbed, after which nothing is left over."""
        _ask_for(self.folder, length)
        ending = self.server.run(Task(_record(self.folder, "after the kills")))
        assert ending.status == 0, ending.output
        golden = _golden(self.folder)
        assert (golden.document.reason, _length(golden)) == ("after the kills", length)
        self.require_right(golden)
        assert self.left_over(golden) == set()


def _kills(pair: _Folder, seed: int, *, longest: float, writing: bool) -> Iterator[int]:
    """Kill at random moments of up to `longest` seconds, cleaning now and then; yield how many died of it so far."""
    draw = random.Random(seed)  # noqa: S311
    for index in itertools.count(1):
        # While it writes, always other tensors: more of them can be left over.
        lengths = [length for length in LENGTHS if not writing or length != _length(_golden(pair.folder))]
        moment = draw.uniform(0, longest)
        pair.kill(draw.choice(lengths), f"kill {index}", moment, writing=writing)
        if index % _BETWEEN == 0:
            pair.clean(draw.choice(LENGTHS))
        yield pair.outcomes["old"] + pair.outcomes["new"]


def test_record_killed_at_any_moment_leaves_a_whole_golden(
    recorded: Path, server: Server, undisturbed: _Undisturbed
) -> None:
    pair = _Folder(recorded.parent, server, undisturbed)
    # A bit longer than it takes, so that the last moments are drawn as well; what had ended by then is not counted.
    for killed in _kills(pair, 1, longest=1.1 * undisturbed.seconds, writing=False):
        if killed == KILLS:
            break
        assert pair.outcomes["ended"] < KILLS
    pair.clean(LENGTHS[0])


def test_record_killed_while_it_writes_leaves_one_golden_or_the_other(
    recorded: Path, server: Server, undisturbed: _Undisturbed
) -> None:
    pair = _Folder(recorded.parent, server, undisturbed)
    for killed in _kills(pair, 2, longest=1.5 * undisturbed.writing, writing=True):
        # Both sides of the rename must have been hit, and moments that leave something.
        everything = min(pair.outcomes["old"], pair.outcomes["new"]) > 0 and pair.leftovers == {".part", ".safetensors"}
        if killed >= KILLS_WHILE_WRITING and everything:
            break
        assert pair.outcomes.total() < 5 * KILLS_WHILE_WRITING, (pair.outcomes, pair.leftovers)
    pair.clean(LENGTHS[0])
