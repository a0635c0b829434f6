"""The sets of packages that the tox environments install, against what pyproject.toml claims."""

from __future__ import annotations

import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from suites.support.builtin_pairs import ROOT


def _claimed() -> dict[str, Requirement]:
    """Return every package that the project requires or offers as an extra, by its canonical name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [one for group in project["optional-dependencies"].values() for one in group]
    requirements = [Requirement(line) for line in (*project["dependencies"], *extras)]
    return {canonicalize_name(one.name): one for one in requirements}


def _pinned(name: str) -> dict[str, Version]:
    """Return the versions that a file of constraints pins, by canonical name."""
    lines = (ROOT / "constraints" / name).read_text(encoding="utf-8").splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith(("#", "-c "))]
    return {canonicalize_name(package): Version(version) for package, version in pins}


def test_the_oldest_set_pins_the_lower_bounds() -> None:
    bounds = {}
    for name, requirement in _claimed().items():
        [bound] = requirement.specifier
        assert bound.operator == ">=", requirement
        bounds[name] = Version(bound.version)
    pinned = _pinned("oldest.txt")
    assert {name: pinned.get(name) for name in bounds} == bounds


@pytest.mark.parametrize("name", ["cpu.txt", "sglang-cpu.txt"])
def test_the_other_sets_are_within_the_bounds(name: str) -> None:
    pinned = _pinned(name)
    outside = [str(one) for key, one in _claimed().items() if key in pinned and pinned[key] not in one.specifier]
    assert outside == []
    assert len(pinned.keys() & _claimed().keys()) >= 14
