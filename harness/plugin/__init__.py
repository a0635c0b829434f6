"""The pytest plugin: a pair file is a test file with one test for each detector.

This module has only options, hooks and fixtures. Every pytest run in an environment with acceptance-harness loads it,
so nothing heavy is imported until a pair is measured.
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
    "gpu": "needs CUDA; skipped with the reason if CUDA does not work",
    "sglang": "runs the real SGLang package",
    "slow": "takes more than a few seconds",
    "bench": "measures speed",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the `--acceptance-*` options."""
    group = parser.getgroup("acceptance", "acceptance of speculative-decoding pairs")
    group.addoption(
        "--acceptance-pair",
        metavar="PAIR",
        help="pair file, or name of a built-in pair, that the fixtures pair, acceptance and golden measure",
    )
    group.addoption("--acceptance-engine", metavar="NAME", help="engine to use instead of the one in each pair file")
    group.addoption(
        "--acceptance-endpoint",
        metavar="URL",
        help="measure the running SGLang or vLLM server at this address instead of the engine in each pair file",
    )
    group.addoption("--acceptance-json", metavar="FILE", help="write the results of all pairs to FILE as JSON")
    group.addoption(
        "--acceptance-update",
        action="store_true",
        help="for each pair whose tests run, record the golden of its own class if it is missing, or again if the "
        "check differs from it; not with -n, and not if CI is set",
    )
    group.addoption(
        "--acceptance-reason",
        metavar="TEXT",
        help="why --acceptance-update replaces goldens; required if one exists, and recorded in the new ones",
    )
    group.addoption(
        "--acceptance-require-gpu",
        action="store_true",
        help="fail tests marked gpu, instead of skipping them, if CUDA does not work",
    )
    group.addoption(
        "--acceptance-pairs",
        metavar="DIR",
        help="folder of pair files that the project's gpu suite serves with SGLang, in every serving mode",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register markers and the plugin's parts: results, skipped GPU tests, unused goldens, updates."""
    from harness.plugin.gpu import Unchecked, pair_files_to_serve
    from harness.plugin.orphans import Orphans
    from harness.plugin.session import Results, require_json_writable
    from harness.plugin.update import Updates, require_update_allowed

    require_json_writable(config)
    require_update_allowed(config)
    # Before anything is collected: with a missing folder no test would fail, as if all of its pairs had passed.
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
    """Print the version of acceptance-harness."""
    return f"acceptance-harness: {__version__}"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> PairCollector | None:
    """Collect `*.pair.toml` files."""
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
        pytest.fail("the fixtures pair, acceptance and golden require --acceptance-pair PAIR", pytrace=False)
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
