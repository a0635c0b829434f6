"""The command line in this process: what a command did."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on stdout."""
        body = json.loads(self.out)
        assert isinstance(body, dict)
        return body


Command = Callable[..., Answer]
