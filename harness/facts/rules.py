"""How a list of layer ids becomes boundaries: every rule found in an engine or trainer, as data with its own name.

In all of them a boundary is the id plus an offset, which may depend on the whole list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["AS_IS", "AS_IS_IF_LAST", "PLUS_ONE", "PLUS_ONE_IF_FIRST_IS_ONE", "IdRule"]


@dataclass(frozen=True)
class IdRule:
    """The offset from ids to boundaries.

    Attributes:
        text: The rule in words.
        offset: From the ids and the target's number of blocks N to the offset of each.
        offsets: All values that `offset` can return.
    """

    text: str
    offset: Callable[[Sequence[int], int], int]
    offsets: tuple[int, ...]

    def describe(self, ids: Sequence[int], num_layers: int) -> str:
        """Return the rule in words, with its result for these ids if it depends on them."""
        added = self.offset(ids, num_layers)
        applied = f"boundary = id + {added}" if added else "boundary = id"
        return applied if len(self.offsets) == 1 else f"{self.text}; here {applied}"


AS_IS = IdRule("boundary = id", lambda _ids, _layers: 0, (0,))
PLUS_ONE = IdRule("boundary = id + 1", lambda _ids, _layers: 1, (1,))
PLUS_ONE_IF_FIRST_IS_ONE = IdRule(
    "boundary = id + 1 only if the first id is 1, else boundary = id",
    lambda ids, _layers: int(bool(ids) and ids[0] == 1),
    (0, 1),
)
AS_IS_IF_LAST = IdRule(
    "boundary = id if the greatest id is the number of layers, else boundary = id + 1",
    lambda ids, layers: int(max(ids, default=0) != layers),
    (1, 0),
)
