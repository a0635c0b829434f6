"""A nightly's results, read from what pytest wrote: `--acceptance-json` and `--junitxml`."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from harness.errors import InputError
from harness.files import is_file, read_json_object, read_text

__all__ = ["Failure", "Nightly", "NightlyState", "PairRow", "RunInfo", "read_nightly"]

_SCHEMA = 1


class NightlyState(StrEnum):
    """What a nightly came to; everything but `green` asks somebody to look."""

    GREEN = "green"
    RED = "red"
    UNFINISHED = "unfinished"
    UNCHECKED = "unchecked"


@dataclass(frozen=True)
class RunInfo:
    """Which run it was.

    Attributes:
        name: The nightly's name: one repository can have several.
        id: What tells the run from every other; a second attempt has the same.
        time: When, as ISO 8601 in UTC.
        commit: The commit that ran; empty where it is not known.
        url: Where its log is; empty where there is none.
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
        pair: Its name.
        file: Its pair file, as the run saw it.
        verdict: The gate's verdict.
        rate: Acceptance rate, as a share; `None` where nothing was measured.
        error: Its standard error.
        length: Acceptance length, with the bonus token.
        drop: Drop of the rate against the golden, as a share; `None` where there is nothing to compare.
        prompts: Number of prompts.
        engine: Engine, device and dtype.
        first_stage: The first stage at which it parts from its golden, in words.
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
    """What failed, with the text it failed with.

    Attributes:
        where: The pair's name, or the test file.
        tests: Names of the tests that failed so.
        text: What they failed with. Each test of a pair tells the pair's whole report, which stands here once.
    """

    where: str
    tests: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Nightly:
    """A nightly's results.

    Attributes:
        run: Which run it was.
        state: What it came to.
        why: The state's reason, in one sentence.
        tests: How many tests passed, failed and were skipped.
        pairs: The pairs measured.
        failures: What failed.
        not_checked: What the machine lacked: marker, number of tests, reason.
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
        """Whether all is well."""
        return self.state is NightlyState.GREEN


def read_nightly(run: RunInfo, *, results: Path, junit: Path, job: str) -> Nightly:
    """Read what a run left.

    Args:
        run: Which run it was.
        results: What `--acceptance-json` wrote; may be missing, as after a machine that died.
        junit: What `--junitxml` wrote; may be missing.
        job: How the job that ran pytest ended: `success`, `failure` or `cancelled`.

    Raises:
        InputError: A file is there and is not what it should be.
    """
    body = _read_results(results) if is_file(results) else {}
    counts, failures = _read_junit(junit) if is_file(junit) else ({}, ())
    rows = tuple(_row(file, result, results) for file, result in body.get("pairs", {}).items())
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
        return NightlyState.UNFINISHED, f"no test failed, and the job ended with {job}: its log says why"
    if not complete:
        return NightlyState.UNFINISHED, "pytest wrote no figures (--acceptance-json)"
    if not counts["passed"]:
        return NightlyState.UNCHECKED, f"nothing was checked: {counts['skipped']} tests were skipped"
    return NightlyState.GREEN, f"{counts['passed']} tests passed"


def _read_results(file: Path) -> dict[str, Any]:
    body = read_json_object(file, what="results", next_step="give the file that --acceptance-json wrote")
    if body.get("schema_version") != _SCHEMA or not isinstance(body.get("pairs"), dict):
        raise InputError(
            "these are no results of pytest",
            file=file,
            key="schema_version and pairs",
            found=body.get("schema_version"),
            expected=f"schema_version {_SCHEMA}, and pairs by their files",
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
            "a pair's result has another form",
            file=source,
            key=f"pairs.{file}",
            found=f"{type(error).__name__}: {error}",
            expected="what --acceptance-json of this version writes",
        ) from None


def _read_junit(file: Path) -> tuple[dict[str, int], tuple[Failure, ...]]:
    try:
        # Our own pytest wrote it.
        root = ElementTree.fromstring(read_text(file, what="JUnit file"))  # noqa: S314
    except ElementTree.ParseError as error:
        raise InputError(
            "the JUnit file is no XML", file=file, found=str(error), expected="what --junitxml wrote"
        ) from None
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    texts: dict[tuple[str, str], dict[str, str]] = {}
    for case in root.iter("testcase"):
        broken = [*case.iter("failure"), *case.iter("error")]
        if broken:
            counts["failed"] += 1
            where, is_pair = _where(case)
            text = "\n".join(_text(part) for part in broken)
            texts.setdefault((where, "" if is_pair else text), {})[case.get("name", "?")] = text
        else:
            counts["skipped" if case.find("skipped") is not None else "passed"] += 1
    failures = tuple(
        Failure(where, tuple(by_test), max(by_test.values(), key=len)) for (where, _), by_test in texts.items()
    )
    return counts, failures


def _where(case: ElementTree.Element) -> tuple[str, bool]:
    """Return what a test is told under, and whether that is a pair."""
    for entry in case.iter("property"):
        if entry.get("name") == "acceptance_pair":
            return entry.get("value", "?"), True
    name = case.get("classname") or "?"
    return name, name.endswith(".pair.toml")


def _text(part: ElementTree.Element) -> str:
    return (part.text or part.get("message") or "no text").strip()
