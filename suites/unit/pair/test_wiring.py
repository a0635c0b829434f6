"""The boundaries that a pair was trained on, and the ones it is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.commands.measure import measure
from harness.commands.prepare import prepare
from harness.errors import InputError


def test_served_by_sglang_sorts_and_never_reaches_the_last_boundary(recorded: Path) -> None:
    """SGLang's capture loop loses the order, and boundary N: two states are left where three were trained."""
    recorded.write_text(recorded.read_text().replace("[decode]", 'served_by = "sglang==0.5.23"\n[decode]'))
    with pytest.raises(InputError, match=r"captures fewer .*\[0, 2\] for ids \[-1, 1, 3\].*\[0, 2, 4\], as trained"):
        measure(prepare(recorded))
    config = recorded.parent / "draft" / "config.json"
    config.write_text(config.read_text().replace("[-1, 1, 3]", "[2, 0, 1]"))
    wiring = prepare(recorded).wiring
    assert (wiring.trained.boundaries, wiring.served.boundaries) == ((3, 1, 2), (1, 2, 3))
