"""The pytest plugin: a pair file is a test file, with one test for each detector.

Only options, hooks and fixtures are here. Nothing heavy is imported until a pair is measured: every pytest run in an
environment that has the harness loads this module.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness import __version__

if TYPE_CHECKING:
    from harness.commands.check import CheckResult
    from harness.counts.acceptance import Acceptance
    from harness.golden.store import Golden
    from harness.pair.pair import Pair
    from harness.plugin.items import PairCollector

__all__: list[str] = []

_MARKERS = {
    "gpu": "needs CUDA; skipped with the reason where it does not work",
    "sglang": "runs the real SGLang package",
    "slow": "takes more than some seconds",
    "bench": "measures speed",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the `--acceptance-*` options."""
    group = parser.getgroup("acceptance", "acceptance of speculative-decoding pairs")
    group.addoption(
        "--acceptance-pair", metavar="PAIR", help="the pair of the fixtures pair, acceptance and golden: file or name"
    )
    group.addoption("--acceptance-engine", metavar="NAME", help="engine to use instead of each pair file's")
    group.addoption(
        "--acceptance-endpoint",
        metavar="URL",
        help="measure the running SGLang or vLLM server at this address instead of each pair file's engine",
    )
    group.addoption("--acceptance-json", metavar="FILE", help="write every pair's result to FILE as JSON")
    group.addoption(
        "--acceptance-update",
        action="store_true",
        help="record the goldens of the pairs whose tests run anew where their check differs, and missing ones; "
        "not with -n, not where CI is set",
    )
    group.addoption(
        "--acceptance-reason",
        metavar="TEXT",
        help="why --acceptance-update replaces goldens; they keep it, and need it where there is one already",
    )
    group.addoption(
        "--acceptance-require-gpu", action="store_true", help="fail tests marked gpu where CUDA does not work"
    )
    group.addoption(
        "--acceptance-pairs",
        metavar="DIR",
        help="folder of pair files that the project's gpu suite runs on the real SGLang, in every way of serving",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register markers and the parts of the plugin: results, what a machine lacks, unused goldens, updates."""
    from harness.plugin.gpu import Unchecked, pair_files_to_serve
    from harness.plugin.orphans import Orphans
    from harness.plugin.session import Results, require_json_writable
    from harness.plugin.update import Updates, require_update_allowed

    require_json_writable(config)
    require_update_allowed(config)
    # Asked before anything is collected: a folder that is not there must not look like one that passes.
    pair_files_to_serve(config)
    for name, text in _MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {text}")
    results = Results(config)
    config.pluginmanager.register(results, "acceptance-results")
    config.pluginmanager.register(Unchecked(config, results.body), "acceptance-unchecked")
    config.pluginmanager.register(Orphans(config, results.body), "acceptance-orphans")
    if config.getoption("--acceptance-update"):
        config.pluginmanager.register(Updates(config, results.body), Updates.name)


def pytest_report_header() -> str:
    """Say which harness runs."""
    return f"acceptance-harness: {__version__}"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> PairCollector | None:
    """Collect `*.pair.toml`."""
    if not file_path.name.endswith(".pair.toml"):
        return None
    from harness.plugin.items import PairCollector

    return PairCollector.from_parent(parent, path=file_path)


@pytest.fixture(scope="session")
def _acceptance_result(request: pytest.FixtureRequest) -> CheckResult:
    from harness.errors import HarnessError
    from harness.pair.builtin import find_pair
    from harness.plugin.session import checked

    name = request.config.getoption("--acceptance-pair")
    if name is None:
        pytest.fail("the fixtures pair, acceptance and golden need --acceptance-pair PAIR", pytrace=False)
    try:
        return checked(request.config, find_pair(str(name)))
    except HarnessError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def pair(_acceptance_result: CheckResult) -> Pair:
    """The pair named by `--acceptance-pair`."""
    return _acceptance_result.pair


@pytest.fixture(scope="session")
def acceptance(_acceptance_result: CheckResult) -> Acceptance:
    """The measured acceptance of the pair named by `--acceptance-pair`."""
    return _acceptance_result.measurement.acceptance


@pytest.fixture(scope="session")
def golden(_acceptance_result: CheckResult) -> Golden:
    """The golden of the pair named by `--acceptance-pair`."""
    return _acceptance_result.golden
