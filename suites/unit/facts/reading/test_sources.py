"""Sources of a release that import each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.conformance.matrix import build_matrix
from harness.errors import InputError
from suites.support.sglang_release import (
    read_release,
)


def test_sources_that_import_each_other_in_a_circle_are_no_endless_search(tmp_path: Path) -> None:
    models = {"a": "from sglang.srt.models.b import Thing\n", "b": "from sglang.srt.models.a import Thing\n"}
    sources = read_release(tmp_path, **models)
    assert sources.find_class("a", "Thing") is None
    with pytest.raises(InputError):
        build_matrix(sources, only=("Thing",))
