"""Hypothesis profiles and pytester; the harness' own plugin loads through its entry point."""

import hypothesis

pytest_plugins = ["pytester"]

hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("nightly", deadline=None, max_examples=1000)
hypothesis.settings.load_profile("default")
