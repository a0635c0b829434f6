"""One measurement for each pair: cached in the session, shared between workers, collected for the summary."""

from __future__ import annotations

import hashlib
import pickle
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.report.bodies.session import SessionBody

if TYPE_CHECKING:
    from harness.commands.check import CheckResult
    from harness.pair.pair import Pair

__all__ = ["Results", "checked", "forget", "pair_files", "prepared", "require_json_writable"]

_CACHE: pytest.StashKey[dict[Path, CheckResult | BaseException]] = pytest.StashKey()


def checked(config: pytest.Config, file: Path) -> CheckResult:
    """Return the check of a pair file, which is measured once in a session.

    Raises:
        HarnessError: The pair cannot be checked; the same error on every call.
    """
    cache = config.stash.setdefault(_CACHE, {})
    file = file.resolve()
    if file not in cache:
        try:
            cache[file] = _shared(config, file)
        except Exception as error:  # noqa: BLE001 - cached, so that each of the pair's tests fails with it at once
            cache[file] = error
    result = cache[file]
    if isinstance(result, BaseException):
        raise result
    return result


def prepared(config: pytest.Config, file: Path) -> Pair:
    """Return a pair with the engine that the options select.

    Raises:
        HarnessError: The pair or a choice cannot be used.
    """
    from harness.commands.prepare import prepare

    engine, endpoint = (config.getoption(f"--acceptance-{name}") for name in ("engine", "endpoint"))
    return prepare(file, engine=engine, endpoint=endpoint)


def forget(config: pytest.Config, file: Path) -> None:
    """Drop the cached check of a pair file, whose golden has been replaced since."""
    config.stash.get(_CACHE, {}).pop(file.resolve(), None)


def pair_files(items: Iterable[pytest.Item]) -> list[Path]:
    """Return the pair files that tests were collected from, without repetitions."""
    return list(dict.fromkeys(item.path for item in items if item.path.name.endswith(".pair.toml")))


def require_json_writable(config: pytest.Config) -> None:
    """Refuse an unwritable `--acceptance-json FILE` before anything is measured.

    Raises:
        pytest.UsageError: The path is a folder, or its folder cannot be created or written.
    """
    target = config.getoption("--acceptance-json")
    if not target or hasattr(config, "workerinput"):
        return
    from harness.errors import InputError
    from harness.files import is_folder, require_writable

    if is_folder(Path(target)):
        raise pytest.UsageError(f"--acceptance-json: {target} is a folder; name a file")
    try:
        require_writable(Path(target).parent)
    except InputError as error:
        raise pytest.UsageError(f"--acceptance-json: {error}") from None


def _shared(config: pytest.Config, file: Path) -> CheckResult:
    """Measure a pair, or take the measurement of another worker of this run."""
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
        # Safe to unpickle: a worker of this run wrote it, to a folder that only this user can write.
        return pickle.loads(stored.read_bytes())  # type: ignore[no-any-return]  # noqa: S301


def _shared_folder(run: str) -> Path:
    return Path(tempfile.gettempdir()) / f"acceptance-{run}"


def _measure(config: pytest.Config, file: Path) -> CheckResult:
    from harness.commands.check import check

    return check(prepared(config, file))


class Results:
    """Collects results from test reports, which reach the controller of a distributed run too.

    Args:
        config: Has the options of the run.

    Attributes:
        rows: Each pair's result, by the path of its pair file.
        failed: The paths of the pair files with a failed test.
        unwritten: Why `--acceptance-json` could not be written, if it could not.
        body: The object that `--acceptance-json` writes; other parts of the plugin add to it before the session ends.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.failed: set[str] = set()
        self.unwritten: str | None = None
        self.body: SessionBody[dict[str, Any]] = SessionBody()
        self.rows = self.body.pairs

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        """Attach the pair's result to the reports of its tests."""
        outcome = yield
        cached = self.config.stash.get(_CACHE, {}).get(item.path.resolve())
        if cached is not None and not isinstance(cached, BaseException):
            from harness.report.bodies.base import plain
            from harness.report.bodies.check import check_body

            outcome.get_result().acceptance = {str(item.path): plain(check_body(cached))}  # type: ignore[attr-defined]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take results from reports, whichever process wrote them."""
        attached: dict[str, dict[str, Any]] = getattr(report, "acceptance", {})
        if report.when == "call" and ".pair.toml" in report.nodeid:
            self.rows.update(attached)
            if report.failed:
                self.failed.update(attached or {report.nodeid.partition("::")[0]: {}})

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the results to the file of `--acceptance-json`, and remove the measurements that workers shared."""
        distributed = self.config.pluginmanager.getplugin("dsession")
        if distributed is not None:
            shutil.rmtree(_shared_folder(distributed.nodemanager.testrunuid), ignore_errors=True)
        target = self.config.getoption("--acceptance-json")
        if target and not hasattr(self.config, "workerinput"):
            from harness.errors import InputError
            from harness.files import json_text, write_atomically
            from harness.report.bodies.base import plain

            try:
                write_atomically(Path(target), f"{json_text(plain(self.body))}\n".encode())
            except InputError as error:
                # For example, the disk filled up in the meantime. The summary must still show the measurements.
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
    """Yield the acceptance table, one line for each pair."""
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
