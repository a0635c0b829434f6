"""A whole engine that did not run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.conformance import whole
from harness.conformance.asked import WHOLE_ENGINE, asked_lists
from harness.errors import EngineError


def test_why_a_whole_engine_did_not_run_names_no_place_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def died(*_: Any) -> None:
        raise EngineError("SGLang died; the last error in its log is KeyError: 'x'", log=Path("/some/log"), tail=["x"])

    monkeypatch.setattr(whole, "_write_pair", died)
    (entry,) = [entry for entry in asked_lists() if entry.name == WHOLE_ENGINE]
    assert whole.run_whole("LlamaForCausalLM", entry) == "SGLang died; the last error in its log is KeyError: 'x'"
