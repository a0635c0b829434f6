"""Hypothesis profiles, pytester, and the harness' own plugin, so that a checkout that is not installed runs too."""

import hypothesis

pytest_plugins = ["pytester", "harness.plugin"]

hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("nightly", deadline=None, max_examples=1000)
hypothesis.settings.load_profile("default")
