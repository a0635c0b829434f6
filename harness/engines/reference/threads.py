"""How many threads torch uses: one for a small target, unless the user chose a number."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch

from harness.pair.pair import Pair

__all__ = ["suitable_threads"]

# In hidden units. Below it, handing work to a second thread costs more than the work.
_SMALL_WIDTH = 512


@contextlib.contextmanager
def suitable_threads(pair: Pair) -> Iterator[None]:
    """Run the block with one CPU thread if the pair is small, and give torch its threads back afterwards.

    `OMP_NUM_THREADS` and `MKL_NUM_THREADS` are the user's choice and are left alone.
    """
    chosen = any(os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"))
    before = torch.get_num_threads()
    if chosen or before == 1 or pair.target.hidden_size >= _SMALL_WIDTH:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
