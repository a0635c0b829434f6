"""The gpu suite: what is not CUDA's alone runs on a CPU too, in every run, so that no body first runs on a GPU."""

from __future__ import annotations

import pytest

CUDA = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        # On a machine that nobody has prepared, what a driver or torch warns about is shown and fails nothing.
        pytest.mark.filterwarnings("default"),
    ],
)


@pytest.fixture(scope="session", params=["cpu", CUDA])
def device(request: pytest.FixtureRequest) -> str:
    """The device that a test runs on."""
    return str(request.param)
