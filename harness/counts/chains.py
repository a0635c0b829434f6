"""The chains of an engine that decodes: known at its own rounds, and compared for as long as two texts are one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from harness.counts.run import PromptRecord

__all__ = ["UNKNOWN", "changed_chains", "compared_chains", "known_chains", "shared_length"]

UNKNOWN = -1
"""In place of the tokens of a chain that an engine does not know."""


def known_chains(record: PromptRecord, starts: int, k: int) -> NDArray[np.int64] | None:
    """Return the chains of a record by position.

    Args:
        record: A record of any engine.
        starts: n, the number of positions at which a round could start.
        k: Chain length.

    Returns:
        int64 [n, k], a row of UNKNOWN where no round started; `None` if the engine does not know any chain.
    """
    if record.proposals is not None:
        return record.proposals
    if record.chains is None or record.rounds is None:
        return None
    result = np.full((starts, k), UNKNOWN, np.int64)
    for start, chain in record.starts():
        result[start] = chain
    return result


def shared_length(ours: Sequence[int], theirs: Sequence[int] | NDArray[np.int32]) -> int:
    """Return how many tokens two texts begin with in common."""
    common = min(len(ours), len(theirs))
    differs = np.asarray(ours[:common]) != np.asarray(theirs[:common])
    # argmax of booleans is the first that is true.
    return int(differs.argmax()) if differs.any() else common


def changed_chains(
    record: PromptRecord, text: Sequence[int] | NDArray[np.int32], chains: NDArray[np.integer]
) -> NDArray[np.bool_] | None:
    """Return whether each chain that both sides know is another one.

    Past the first token that differs, an engine that decodes continues another text: chains are compared up to there.

    Args:
        record: A record of any engine.
        text: The continuation that the chains belong to.
        chains: [n, k]: the chains by position, rows of UNKNOWN included.

    Returns:
        bool, one for each position compared, in order; `None` if the record does not know any chain.
    """
    compared = compared_chains(record, text, chains)
    if compared is None:
        return None
    where, ours = compared
    changed: NDArray[np.bool_] = (ours != chains[where]).any(axis=1)
    return changed


def compared_chains(
    record: PromptRecord, text: Sequence[int] | NDArray[np.int32], chains: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return where both sides know a chain, int64 [m], and the record's chains there, int64 [m, k].

    Args:
        record: A record of any engine.
        text: The continuation that the chains belong to.
        chains: [n, k]: the chains by position, rows of UNKNOWN included.

    Returns:
        `None` if the record does not know any chain.
    """
    known: NDArray[np.bool_] = (chains != UNKNOWN).any(axis=1)
    if record.proposals is not None:
        where = np.flatnonzero(known)
        return where, record.proposals[where]
    if record.chains is None or record.rounds is None:
        return None
    same = min(shared_length(record.continuation, text), len(chains))
    rows = [(start, chain) for start, chain in record.starts() if start < same and known[start]]
    starts = np.array([start for start, _ in rows], np.int64)
    return starts, np.array([chain for _, chain in rows], np.int64).reshape(len(rows), chains.shape[1])
