"""Windows of neighbouring positions, counted."""

from __future__ import annotations

import numpy as np

from harness.counts.run import changed_windows


def test_windows_of_neighbouring_positions() -> None:
    changed = np.array([0, 1, 1, 0, 0, 0, 0, 0, 1], bool)
    assert changed_windows(changed, 4) == (2, 3)
    assert changed_windows(np.zeros(8, bool), 4) == (0, 2)
    assert changed_windows(np.zeros(0, bool), 4) == (0, 0)
