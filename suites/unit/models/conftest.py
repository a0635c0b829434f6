"""A target in float64 for the tests of capture and precision."""

import pytest
import torch

from harness.models.target import Target, load_target
from harness.pair.target_spec import read_target_spec
from suites.support.random_pair import write_target


@pytest.fixture(scope="module")
def target64(tmp_path_factory: pytest.TempPathFactory) -> Target:
    folder = tmp_path_factory.mktemp("target")
    write_target(folder)
    return load_target(read_target_spec(folder), dtype=torch.float64)
