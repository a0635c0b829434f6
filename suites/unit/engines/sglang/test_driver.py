"""The program that holds an engine, asked without one: what it makes of an engine that is not idle yet."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from harness.engines.sglang import driver


class _Engine:
    """Stands for SGLang's engine: refuses to flush its cache a number of times."""

    def __init__(self, refusals: int) -> None:
        self.left = refusals

    def flush_cache(self) -> SimpleNamespace:
        self.left -= 1
        return SimpleNamespace(success=self.left < 0)


def test_the_cache_is_flushed_once_the_engine_is_idle() -> None:
    engine = _Engine(refusals=2)
    assert driver.serve(engine, {"flush_cache": {}}) == []
    assert engine.left == -1


def test_an_engine_that_is_never_idle_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_IDLE_SECONDS", 0.2)
    with pytest.raises(TimeoutError, match="not idle"):
        driver.serve(_Engine(refusals=10_000), {"flush_cache": {}})
