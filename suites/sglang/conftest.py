"""The suites of the real SGLang: marked, skipped where it is not installed, and its version told."""

from __future__ import annotations

import importlib.metadata
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_HERE = Path(__file__).parent


def _version() -> str | None:
    try:
        return importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        return None


def pytest_report_header() -> str:
    return f"SGLang: {_version() or 'not installed, suites/sglang is skipped'}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.sglang)
        if _version() is None:
            item.add_marker(pytest.mark.skip(reason="SGLang is not installed: python -m tox -e sglang-cpu"))


@pytest.fixture(scope="session", autouse=True)
def _engines_leave_their_logs_with_pytest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = tempfile.tempdir
    tempfile.tempdir = str(tmp_path_factory.mktemp("engines"))
    yield
    tempfile.tempdir = before
