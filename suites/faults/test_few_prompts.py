"""Every single wrong id is seen on nearly every random subset of the prompts, not only on all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from harness.commands.prepare import prepare
from harness.detectors import Context, State, run_detectors
from harness.detectors.gate import verdict
from harness.golden.find import find_golden
from harness.golden.golden_class import DEFAULT
from harness.golden.store import load_golden
from suites.support.builtin_pairs import replay_golden

pytestmark = pytest.mark.slow

SUBSETS, SIZE = 200, 24
FORWARD = ("proposals", "likelihood", "acceptance")
WIRINGS = {"tiny": (2, 4, 7), "tiny-embedding": (0, 2, 4)}


def _single_faults() -> list[tuple[str, tuple[int, ...]]]:
    return [
        (name, (*wiring[:slot], other, *wiring[slot + 1 :]))
        for name, wiring in WIRINGS.items()
        for slot, boundary in enumerate(wiring)
        for other in (boundary - 1, boundary + 1)
        if 0 <= other <= 8
    ]


@pytest.mark.parametrize(("name", "boundaries"), _single_faults())
def test_a_single_wrong_boundary_is_seen_on_random_subsets(name: str, boundaries: tuple[int, ...]) -> None:
    pair = prepare(name)
    golden = load_golden(find_golden(pair, DEFAULT))
    run = replay_golden(name, boundaries)
    generator = np.random.default_rng(5)
    seen = 0
    for _ in range(SUBSETS):
        chosen = generator.choice(len(run.records), SIZE, replace=False)
        subset = replace(run, records=tuple(run.records[row] for row in chosen))
        findings = run_detectors(Context(pair, subset, golden))
        # The stages see a wrong wire even if it does no harm; here it must show in what the draft proposes.
        state = verdict(findings[name].state for name in FORWARD)
        seen += state in (State.REGRESSION, State.CHANGED)
    print(f"\n{name} {boundaries}: seen on {seen} of {SUBSETS} subsets of {SIZE} prompts")  # noqa: T201
    assert seen >= 0.99 * SUBSETS


@pytest.mark.parametrize("name", WIRINGS)
def test_the_right_wiring_is_never_called_wrong(name: str) -> None:
    pair = prepare(name)
    golden = load_golden(find_golden(pair, DEFAULT))
    run = replay_golden(name)
    generator = np.random.default_rng(6)
    for _ in range(SUBSETS):
        chosen = generator.choice(len(run.records), SIZE, replace=False)
        subset = replace(run, records=tuple(run.records[row] for row in chosen))
        findings = run_detectors(Context(pair, subset, golden))
        assert verdict(finding.state for finding in findings.values()) is State.PASS
