"""One measurement a pair: cached in the session, shared between workers, gathered for the summary."""

from __future__ import annotations

import hashlib
import pickle
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.report.session_body import SessionBody

if TYPE_CHECKING:
    from harness.commands.check import CheckResult
    from harness.pair.pair import Pair

__all__ = ["Results", "checked", "forget", "pair_files", "prepared", "require_json_writable"]

_CACHE: pytest.StashKey[dict[Path, CheckResult | BaseException]] = pytest.StashKey()


def checked(config: pytest.Config, file: Path) -> CheckResult:
    """Return the check of a pair file, measured once a session.

    Raises:
        HarnessError: The pair cannot be checked; the same error each time it is asked for.
    """
    cache = config.stash.setdefault(_CACHE, {})
    file = file.resolve()
    if file not in cache:
        try:
            cache[file] = _shared(config, file)
        except Exception as error:  # noqa: BLE001 - kept, so that each of the pair's tests fails with it at once
            cache[file] = error
    result = cache[file]
    if isinstance(result, BaseException):
        raise result
    return result


def prepared(config: pytest.Config, file: Path) -> Pair:
    """Return a pair with the engine that the options choose.

    Raises:
        HarnessError: The pair or a choice cannot be used.
    """
    from harness.commands.prepare import prepare

    engine, endpoint = (config.getoption(f"--acceptance-{name}") for name in ("engine", "endpoint"))
    return prepare(file, engine=engine, endpoint=endpoint)


def forget(config: pytest.Config, file: Path) -> None:
    """Drop the check of a pair file whose golden has been replaced since."""
    config.stash.get(_CACHE, {}).pop(file.resolve(), None)


def pair_files(items: Iterable[pytest.Item]) -> list[Path]:
    """Return the pair files that tests come from, each once."""
    return list(dict.fromkeys(item.path for item in items if item.path.name.endswith(".pair.toml")))


def require_json_writable(config: pytest.Config) -> None:
    """Refuse, before anything is measured, a place for `--acceptance-json` that cannot be written.

    Raises:
        pytest.UsageError: The folder cannot be made or written, or the place is a folder.
    """
    target = config.getoption("--acceptance-json")
    if not target or hasattr(config, "workerinput"):
        return
    from harness.errors import InputError
    from harness.files import is_folder, require_writable

    if is_folder(Path(target)):
        raise pytest.UsageError(f"--acceptance-json: {target} is a folder, and the results go into a file")
    try:
        require_writable(Path(target).parent)
    except InputError as error:
        raise pytest.UsageError(f"--acceptance-json: {error}") from None


def _shared(config: pytest.Config, file: Path) -> CheckResult:
    """Measure a pair, or take what another worker of this run measured."""
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return _measure(config, file)
    import filelock

    folder = _shared_folder(worker["testrunuid"])
    folder.mkdir(mode=0o700, exist_ok=True)
    stored = folder / hashlib.sha256(str(file).encode()).hexdigest()[:24]
    with filelock.FileLock(f"{stored}.lock"):
        if not stored.exists():
            stored.write_bytes(pickle.dumps(_measure(config, file)))
        # Written by a worker of this very run, in a folder of its own.
        return pickle.loads(stored.read_bytes())  # type: ignore[no-any-return]  # noqa: S301


def _shared_folder(run: str) -> Path:
    return Path(tempfile.gettempdir()) / f"acceptance-{run}"


def _measure(config: pytest.Config, file: Path) -> CheckResult:
    from harness.commands.check import check

    return check(prepared(config, file))


class Results:
    """Gathers results from reports, so that the controller of a distributed run knows them too.

    Args:
        config: The run's configuration.

    Attributes:
        body: What `--acceptance-json` writes; other parts of the plugin add to it before the session finishes.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.failed: set[str] = set()
        self.unwritten: str | None = None
        self.body: SessionBody[dict[str, Any]] = SessionBody()
        self.rows = self.body.pairs

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        """Attach a pair's whole result to its tests' reports."""
        outcome = yield
        cached = self.config.stash.get(_CACHE, {}).get(item.path.resolve())
        if cached is not None and not isinstance(cached, BaseException):
            from harness.report.body import plain
            from harness.report.run_bodies import check_body

            outcome.get_result().acceptance = {str(item.path): plain(check_body(cached))}  # type: ignore[attr-defined]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take results from reports, whichever process made them."""
        attached: dict[str, dict[str, Any]] = getattr(report, "acceptance", {})
        if report.when == "call" and ".pair.toml" in report.nodeid:
            self.rows.update(attached)
            if report.failed:
                self.failed.update(attached or {report.nodeid.partition("::")[0]: {}})

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the results where `--acceptance-json` says, and remove what the workers shared."""
        distributed = self.config.pluginmanager.getplugin("dsession")
        if distributed is not None:
            shutil.rmtree(_shared_folder(distributed.nodemanager.testrunuid), ignore_errors=True)
        target = self.config.getoption("--acceptance-json")
        if target and not hasattr(self.config, "workerinput"):
            from harness.errors import InputError
            from harness.files import json_text, write_atomically
            from harness.report.body import plain

            try:
                write_atomically(Path(target), f"{json_text(plain(self.body))}\n".encode())
            except InputError as error:
                # The disk filled up, say, while the pairs were measured: what was measured must still be shown.
                self.unwritten = str(error)
                session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the acceptance table and the next command."""
        if self.unwritten:
            terminalreporter.line(f"--acceptance-json: {self.unwritten}", red=True)
        if not self.rows and not self.failed:
            return
        terminalreporter.section("acceptance")
        for line in summary_lines(self.rows):
            terminalreporter.line(line)
        for file in sorted(self.failed):
            terminalreporter.line(f"next: harness check {file}", red=True)


def summary_lines(rows: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield the acceptance table, one line a pair."""
    from harness.report.figures import with_error

    if not rows:
        return
    width = max(len(row["pair"]) for row in rows.values()) + 2
    yield f"{'pair':<{width}}{'verdict':<14}{'rate %':>10}{'length':>8}{'drop':>9}{'prompts':>9}{'rounds':>8}  engine"
    for row in rows.values():
        acceptance, drop, engine = row["acceptance"], row["drop"], row["engine"]
        length = "n/a" if acceptance["length"] is None else f"{acceptance['length']:.2f}"
        rate = with_error(acceptance["rate"], acceptance["standard_errors"]["rate"])
        loss = "n/a" if drop is None else f"{drop['estimate']:+.4f}"
        yield (
            f"{row['pair']:<{width}}{row['verdict']:<14}{rate:>10}{length:>8}{loss:>9}"
            f"{acceptance['prompts']:>9}{acceptance['rounds']:>8}"
            f"  {engine['name']} {engine['device']} {engine['dtype']}"
        )
