"""The gpu suite: a test that does not need CUDA runs on a CPU too, so that no test runs for the first time on a GPU."""

from __future__ import annotations

import pytest

CUDA = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        # Warnings of a driver or of torch on a GPU machine are shown, and do not fail the test as they do elsewhere.
        pytest.mark.filterwarnings("default"),
    ],
)


@pytest.fixture(scope="session", params=["cpu", CUDA])
def device(request: pytest.FixtureRequest) -> str:
    """The device that a test runs on."""
    return str(request.param)
