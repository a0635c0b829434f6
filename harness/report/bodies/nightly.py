"""What `nightly report` and `nightly publish` print with `--json`. Needs neither torch nor a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.nightly.results import Failure, Nightly, NightlyState, PairRow, RunInfo
from harness.report.bodies.base import Body

if TYPE_CHECKING:
    from harness.nightly.issue import Published

__all__ = ["NightlyBody", "PublishBody", "nightly_body", "publish_body"]


@dataclass(frozen=True)
class NightlyBody(Body):
    """`harness nightly report`: a nightly run, as `nightly.json` has it too.

    Attributes:
        title: The title of the issue about it.
        green: Whether all is well.
        run: Which run it was.
        state: The run's state.
        why: The state's reason, in one sentence.
        tests: How many tests `passed`, `failed` and were `skipped`; empty if pytest did not write any results.
        pairs: The pairs measured.
        failures: What failed.
        not_checked: What the machine lacked: marker, number of tests, reason.
    """

    title: str
    green: bool
    run: RunInfo
    state: NightlyState
    why: str
    tests: Mapping[str, int]
    pairs: tuple[PairRow, ...]
    failures: tuple[Failure, ...]
    not_checked: tuple[str, ...]


def nightly_body(nightly: Nightly, *, title: str) -> NightlyBody:
    """Return what `harness nightly report --json` prints."""
    return NightlyBody(
        title=title,
        green=nightly.green,
        run=nightly.run,
        state=nightly.state,
        why=nightly.why,
        tests=nightly.tests,
        pairs=nightly.pairs,
        failures=nightly.failures,
        not_checked=nightly.not_checked,
    )


@dataclass(frozen=True)
class PublishBody(Body):
    """`harness nightly publish`: the issue about a nightly run.

    Attributes:
        done: `opened`, `commented`, `closed` or `nothing`.
        issue: The issue's address; `None` without one.
    """

    done: str
    issue: str | None


def publish_body(published: Published) -> PublishBody:
    """Return what `harness nightly publish --json` prints."""
    return PublishBody(published.done, published.issue)
