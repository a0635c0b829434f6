"""The suites of the real SGLang: marked, skipped where it is not installed, and its version told."""

from __future__ import annotations

import importlib.metadata
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
