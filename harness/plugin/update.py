"""`--acceptance-update`: records goldens that are missing or differ from the pair's check, and no others."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from harness.files import shown
from harness.plugin.session import checked, forget, pair_files, prepared
from harness.report.bodies.base import acceptance_body
from harness.report.bodies.session import SessionBody, UpdateBody

if TYPE_CHECKING:
    from harness.commands.check import CheckResult
    from harness.counts.acceptance import Acceptance
    from harness.golden.store import Golden
    from harness.pair.pair import Pair

__all__ = ["Update", "Updates", "find_updates", "require_update_allowed", "update_lines"]

_NAME = "acceptance-updates"


@dataclass(frozen=True)
class Update:
    """The update of one pair's golden.

    Attributes:
        pair: The pair's name.
        done: `refused` means that the error left the golden as it was.
        golden: The golden's JSON; `None` if its class has not been recorded.
        before: The acceptance in the golden before; `None` if its class had not been recorded.
        after: The acceptance in the golden now; `None` if the update was refused.
        changed: Prompts that were measured differently, were added or removed; `None` if the update was refused.
        error: Why the update was refused.
    """

    pair: str
    done: Literal["recorded", "unchanged", "refused"]
    golden: Path | None
    before: Acceptance | None
    after: Acceptance | None = None
    changed: int | None = None
    error: Exception | None = None

    def body(self) -> UpdateBody:
        """Return the object written by `--acceptance-json`."""
        return UpdateBody(
            pair=self.pair,
            done=self.done,
            golden=None if self.golden is None else str(self.golden),
            before=None if self.before is None else acceptance_body(self.before),
            after=None if self.after is None else acceptance_body(self.after),
            changed_prompts=self.changed,
            error=None if self.error is None else str(self.error),
        )


def require_update_allowed(config: pytest.Config) -> None:
    """Refuse `--acceptance-update` in CI, where the diff is not reviewed, and under xdist, where many processes write.

    Raises:
        pytest.UsageError: The option was given in CI or under xdist, or a reason was given without it.
    """
    if not config.getoption("--acceptance-update"):
        if config.getoption("--acceptance-reason") is not None:
            raise pytest.UsageError("--acceptance-reason requires --acceptance-update: it says why goldens are updated")
        return
    if hasattr(config, "workerinput") or config.getoption("dist", "no") != "no":
        raise pytest.UsageError("--acceptance-update writes goldens from a single process: run it without -n / --dist")
    if os.environ.get("CI", "").strip().lower() not in ("", "0", "false"):
        raise pytest.UsageError(
            "--acceptance-update does not run in CI (CI is set): run it where you can review the diff, and commit it"
        )


def find_updates(config: pytest.Config) -> Updates | None:
    """Return the run's updates; `None` without `--acceptance-update`."""
    updates: Updates | None = config.pluginmanager.getplugin(_NAME)
    return updates


class Updates:
    """Updates the golden of each pair that has a test which runs: deselected and skipped tests do not count.

    Args:
        config: Has the options of the run.
        body: The object that `--acceptance-json` writes, to which the updates are added.
    """

    name = _NAME

    def __init__(self, config: pytest.Config, body: SessionBody[Any]) -> None:
        self.config = config
        self._body = body
        self._done: dict[Path, Update] = {}
        self._reason: str | None = (config.getoption("--acceptance-reason") or "").strip() or None

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Refuse two pairs that would write one golden, and require the reason, before anything is measured."""
        from harness.errors import HarnessError
        from harness.golden.find import recording_file

        owners: dict[Path, Path] = {}
        for file in pair_files(session.items):
            try:
                golden = recording_file(prepared(self.config, file))
            except HarnessError:
                # The pair's own tests report what is wrong with it.
                continue
            owner = owners.setdefault(golden.resolve(), file)
            if owner != file:
                raise pytest.UsageError(
                    f"--acceptance-update: {shown(owner)} and {shown(file)} have the same name and engine, and would "
                    f"both write {shown(golden)}: give one of them another name, or update them one by one"
                )
            if not self._reason and os.path.lexists(golden):
                raise pytest.UsageError(
                    f"--acceptance-update: {shown(golden)} exists and would be replaced if it differs; "
                    'give the reason, --acceptance-reason "…"'
                )

    def update(self, file: Path) -> Update:
        """Update a pair's golden, once in a run.

        Raises:
            Exception: The update was refused; the same error on every call.
        """
        file = file.resolve()
        if file not in self._done:
            self._done[file] = self._update(file)
        done = self._done[file]
        if done.error is not None:
            raise done.error
        return done

    def _update(self, file: Path) -> Update:
        name, before = file.name.removesuffix(".pair.toml"), None
        try:
            pair = prepared(self.config, file)
            name, before = pair.name, _golden_before(pair)
            if before is not None and self._is_as_recorded(file):
                same = before.document.acceptance
                return Update(name, "unchanged", before.file, same, same, changed=0)
            return self._record(pair, before)
        except Exception as error:  # noqa: BLE001 - kept, so that each of the pair's tests fails with it at once
            if before is None:
                return Update(name, "refused", None, None, error=error)
            return Update(name, "refused", before.file, before.document.acceptance, error=error)

    def _is_as_recorded(self, file: Path) -> bool:
        from harness.errors import InputError

        try:
            return _is_as_recorded(checked(self.config, file))
        except InputError:
            # Prompts or settings differ from the golden's. Recording corrects that, or fails with the same error.
            return False

    def _record(self, pair: Pair, before: Golden | None) -> Update:
        from harness.commands.record import record
        from harness.golden.difference import difference
        from harness.golden.store import load_golden

        after = load_golden(record(pair, reason=self._reason).file)
        # The cached check compared with the golden that has just been replaced.
        forget(self.config, pair.file)
        now = after.document.acceptance
        if before is None:
            return Update(pair.name, "recorded", after.file, None, now, len(after.document.prompts))
        differs = difference(before, after)
        changed = len(differs.prompts) + len(differs.removed) + len(differs.added)
        return Update(pair.name, "recorded", after.file, before.document.acceptance, now, changed)

    def pytest_sessionfinish(self) -> None:
        """Add the updates to the object that `--acceptance-json` writes."""
        self._body.updates = {str(file): done.body() for file, done in self._done.items()}

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table of updates."""
        terminalreporter.section("golden baselines")
        for line in update_lines(self._done.values()):
            terminalreporter.line(line)


def update_lines(updates: Iterable[Update]) -> Iterator[str]:
    """Yield the table of updates, one line for each pair, and the next step."""
    updates = list(updates)
    if not updates:
        yield "no golden was updated, because no test of a pair file ran"
        return
    from harness.report.figures import rate_text

    width = max(4, *(len(update.pair) for update in updates)) + 2
    yield f"{'pair':<{width}}{'golden':<11}{'rate':>26}{'changed prompts':>17}  file"
    for update in updates:
        rate = f"{rate_text(update.before)} -> {rate_text(update.after)}"
        changed = "n/a" if update.changed is None else str(update.changed)
        file = "none" if update.golden is None else shown(update.golden)
        yield f"{update.pair:<{width}}{update.done:<11}{rate:>26}{changed:>17}  {file}"
    if any(update.done == "recorded" for update in updates):
        yield "next: review the diff of the goldens, then run again without --acceptance-update"


def _golden_before(pair: Pair) -> Golden | None:
    """Return the golden of the pair's own class, `None` if that class has not been recorded yet.

    A check then falls back on a golden of another class. An update must not: the pair's own would never be recorded.

    Raises:
        InputError: The golden in use cannot be read: no golden is written past one whose floor and history are unknown.
    """
    from harness.errors import InputError
    from harness.golden.find import golden_in_use
    from harness.golden.golden_class import GoldenClass
    from harness.golden.store import load_golden

    try:
        file = golden_in_use(pair)
    except InputError:
        return None
    golden = load_golden(file)
    return golden if golden.golden_class == GoldenClass.of_pair(pair) else None


def _is_as_recorded(result: CheckResult) -> bool:
    """Return whether a golden recorded now would have the same counts, proposals, file hashes and floor.

    An engine that differs from itself counts as measuring the same as long as its check passes.
    """
    from harness.counts.acceptance import counts_of
    from harness.counts.chains import changed_chains
    from harness.detectors import Context, State
    from harness.golden.provenance import changed_files

    pair, golden = result.pair, result.golden
    if result.verdict is not State.PASS or pair.settings.gate.floor != golden.document.floor:
        return False
    if changed_files(pair, golden):
        return False
    if golden.document.runs:
        return True
    for record, prompt, tensors in Context(pair, result.measurement.run, golden).pairs():
        if counts_of(record) != prompt.counts() or tensors.proposals is None:
            return False
        changed = changed_chains(record, tensors.continuation, tensors.proposals)
        if changed is None or changed.any():
            return False
    return True
