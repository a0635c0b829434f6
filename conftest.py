"""Hypothesis profiles, pytester, and the harness' own plugin, so that a checkout that is not installed runs too."""

import hypothesis
import pytest

pytest_plugins = ["pytester", "harness.plugin"]

hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("nightly", deadline=None, max_examples=1000)
hypothesis.settings.load_profile("default")


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what a test caches from the user's cache, and from the next test."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path_factory.mktemp("cache")))
