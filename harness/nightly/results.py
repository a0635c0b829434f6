"""The results of a nightly, read from the files that pytest wrote: `--acceptance-json` and `--junitxml`."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from harness.errors import InputError
from harness.files import is_file, read_json_object, read_text

__all__ = ["Failure", "Nightly", "NightlyState", "PairRow", "RunInfo", "read_nightly"]

_SCHEMA = 1


class NightlyState(StrEnum):
    """The state of a nightly; every state but `green` needs attention."""

    GREEN = "green"
    RED = "red"
    UNFINISHED = "unfinished"
    UNCHECKED = "unchecked"


@dataclass(frozen=True)
class RunInfo:
    """The identity of a run.

    Attributes:
        name: The nightly's name: one repository can have several.
        id: Identifies the run; its second attempt has the same id.
        time: When the run was summarised, in UTC.
        commit: The commit that was tested; empty if unknown.
        url: Address of the run's log; empty if unknown.
    """

    name: str
    id: str
    time: str
    commit: str = ""
    url: str = ""


@dataclass(frozen=True)
class PairRow:
    """One pair's figures.

    Attributes:
        pair: The pair's name, with its file if several files of the run have this name.
        file: Path of the pair file on the machine that ran it.
        verdict: The gate's verdict.
        rate: Acceptance rate, as a share; `None` if nothing was measured.
        error: Standard error of the rate.
        length: Acceptance length, bonus token included.
        drop: Drop of the rate from the golden, as a share; `None` if there is nothing to compare.
        prompts: Number of prompts.
        engine: Engine, device and dtype.
        first_stage: The first stage at which the run differs from the golden, in words.
    """

    pair: str
    file: str
    verdict: str
    rate: float | None
    error: float | None
    length: float | None
    drop: float | None
    prompts: int
    engine: str
    first_stage: str | None


@dataclass(frozen=True)
class Failure:
    """Tests that failed with one text.

    Attributes:
        where: The pair's name, or the test file.
        tests: Names of these tests.
        text: Their failure message. Every test of a pair fails with the pair's whole report, which is kept once.
    """

    where: str
    tests: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Nightly:
    """The results of a nightly.

    Attributes:
        run: The identity of the run.
        state: The state of the run as a whole.
        why: The reason for the state, in one sentence.
        tests: Numbers of tests that `passed`, `failed` and were `skipped`.
        pairs: The figures of each measured pair.
        failures: The failed tests.
        not_checked: Tests that this machine could not run: number, marker and reason, in words.
    """

    run: RunInfo
    state: NightlyState
    why: str
    tests: Mapping[str, int]
    pairs: tuple[PairRow, ...]
    failures: tuple[Failure, ...]
    not_checked: tuple[str, ...]

    @property
    def green(self) -> bool:
        """Whether everything was checked and passed."""
        return self.state is NightlyState.GREEN


def read_nightly(run: RunInfo, *, results: Path, junit: Path, job: str) -> Nightly:
    """Read the files that a run left.

    Args:
        run: The identity of the run.
        results: The file of `--acceptance-json`; it may be missing, for example because the machine crashed.
        junit: The file of `--junitxml`; it may be missing.
        job: Result of the job that ran pytest: `success`, `failure` or `cancelled`.

    Raises:
        InputError: A file exists and does not have the expected form.
    """
    body = _read_results(results) if is_file(results) else {}
    rows = _labelled([_row(file, result, results) for file, result in body.get("pairs", {}).items()])
    labels = {row.file: row.pair for row in rows}
    counts, failures = _read_junit(junit, labels) if is_file(junit) else ({}, ())
    state, why = _state(counts, job, complete=bool(body))
    missing = tuple(
        f"{entry['tests']} marked {entry['marker']}: {entry['reason']}" for entry in body.get("not_checked", ())
    )
    return Nightly(run, state, why, counts, rows, failures, missing)


def _state(counts: Mapping[str, int], job: str, *, complete: bool) -> tuple[NightlyState, str]:
    if not counts:
        return NightlyState.UNFINISHED, f"the run ended ({job}) before pytest had written its results"
    if counts["failed"]:
        return NightlyState.RED, f"{counts['failed']} of {sum(counts.values())} tests failed"
    if job != "success":
        return NightlyState.UNFINISHED, f"no test failed, but the job ended with {job}: see its log"
    if not complete:
        return NightlyState.UNFINISHED, "pytest did not write its figures (--acceptance-json)"
    if not counts["passed"]:
        return NightlyState.UNCHECKED, f"nothing was checked: {counts['skipped']} tests were skipped"
    return NightlyState.GREEN, f"{counts['passed']} tests passed"


def _read_results(file: Path) -> dict[str, Any]:
    body = read_json_object(file, what="results", next_step="give the file that --acceptance-json wrote")
    if body.get("schema_version") != _SCHEMA or not isinstance(body.get("pairs"), dict):
        raise InputError(
            "the file does not contain results of pytest",
            file=file,
            key="schema_version and pairs",
            found=body.get("schema_version"),
            expected=f"schema_version {_SCHEMA}, and an object under pairs",
            next_step="give the file that --acceptance-json of this version wrote",
        )
    return body


def _row(file: str, result: dict[str, Any], source: Path) -> PairRow:
    try:
        acceptance, engine, drop, stage = (result[key] for key in ("acceptance", "engine", "drop", "first_stage"))
        return PairRow(
            pair=result["pair"],
            file=file,
            verdict=result["verdict"],
            rate=acceptance["rate"],
            error=acceptance["standard_errors"]["rate"],
            length=acceptance["length"],
            drop=None if drop is None else drop["estimate"],
            prompts=acceptance["prompts"],
            engine=f"{engine['name']} {engine['device']} {engine['dtype']}",
            first_stage=None if stage is None else stage["message"],
        )
    except (KeyError, TypeError) as error:
        raise InputError(
            "the pair's result has an unknown form",
            file=source,
            key=f"pairs.{file}",
            found=f"{type(error).__name__}: {error}",
            expected="a result as --acceptance-json of this version writes it",
        ) from None


def _labelled(rows: Sequence[PairRow]) -> tuple[PairRow, ...]:
    """Return rows whose labels differ: one pair on two engines has two files, and two results."""
    names = [row.pair for row in rows]
    return tuple(
        row if names.count(row.pair) == 1 else replace(row, pair=f"{row.pair} ({_distinct(row, rows)})") for row in rows
    )


def _distinct(row: PairRow, rows: Sequence[PairRow]) -> str:
    """Return the shortest end of a row's path that those of other rows of its name do not have."""
    others = [Path(other.file).parts for other in rows if other.pair == row.pair and other.file != row.file]
    parts = Path(row.file).parts
    for length in range(1, len(parts)):
        if all(other[-length:] != parts[-length:] for other in others):
            return Path(*parts[-length:]).as_posix()
    return row.file


def _read_junit(file: Path, labels: Mapping[str, str]) -> tuple[dict[str, int], tuple[Failure, ...]]:
    try:
        # Safe to parse: our own pytest wrote it.
        root = ElementTree.fromstring(read_text(file, what="JUnit file"))  # noqa: S314
    except ElementTree.ParseError as error:
        raise InputError(
            "the JUnit file is not valid XML",
            file=file,
            found=str(error),
            expected="the file that pytest --junitxml wrote",
        ) from None
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    texts: dict[tuple[str, str], dict[str, str]] = {}
    for case in root.iter("testcase"):
        broken = [*case.iter("failure"), *case.iter("error")]
        if broken:
            counts["failed"] += 1
            where, is_pair = _where(case, labels)
            text = "\n".join(_text(part) for part in broken)
            texts.setdefault((where, "" if is_pair else text), {})[case.get("name", "?")] = text
        else:
            counts["skipped" if case.find("skipped") is not None else "passed"] += 1
    failures = tuple(
        Failure(where, tuple(by_test), max(by_test.values(), key=len)) for (where, _), by_test in texts.items()
    )
    return counts, failures


def _where(case: ElementTree.Element, labels: Mapping[str, str]) -> tuple[str, bool]:
    """Return the pair or test file that a test is reported under, and whether it is a pair.

    Args:
        case: The test in the JUnit file.
        labels: The names under which pairs are reported, by the path of the pair file.
    """
    properties = {entry.get("name"): entry.get("value", "?") for entry in case.iter("property")}
    if "acceptance_pair" in properties:
        return labels.get(properties.get("acceptance_file", ""), properties["acceptance_pair"]), True
    name = case.get("classname") or "?"
    return name, name.endswith(".pair.toml")


def _text(part: ElementTree.Element) -> str:
    return (part.text or part.get("message") or "no text").strip()
