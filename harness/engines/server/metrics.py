"""vLLM's counters out of its `/metrics`: the one reader of that text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Sums", "read_sums"]

# A sample: name, labels, value. Label values are quoted, with \\, \" and \n escaped.
_SAMPLE = re.compile(r'^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?\s+(?P<value>\S+)')
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
_SPECULATION = "vllm:spec_decode_num_"


@dataclass(frozen=True)
class Sums:
    """What vLLM has counted since it started, over all engines and all clients.

    Attributes:
        requests: Requests that ended.
        generated: Tokens generated.
        running: Requests that run now.
        drafts: Verify rounds.
        proposed: Tokens proposed.
        accepted: Tokens accepted.
        reached: Rounds that accepted more than i tokens, by i; empty if the server does not speculate.
    """

    requests: int
    generated: int
    running: int
    drafts: int
    proposed: int
    accepted: int
    reached: tuple[int, ...]

    def since(self, before: Sums) -> Sums:
        """Return what was counted since an earlier reading."""
        return Sums(
            self.requests - before.requests,
            self.generated - before.generated,
            self.running,
            self.drafts - before.drafts,
            self.proposed - before.proposed,
            self.accepted - before.accepted,
            tuple(now - then for now, then in zip(self.reached, before.reached, strict=True)),
        )

    def histogram(self) -> tuple[int, ...]:
        """Return rounds by accepted count: those that accepted more than i - 1 tokens and no more than that."""
        steps = (self.drafts, *self.reached, 0)
        return tuple(more - most for more, most in pairwise(steps))


def read_sums(text: str) -> Sums:
    """Read the text of `/metrics`.

    Raises:
        ValueError: A value is not a number.
    """
    samples = list(_samples(text))

    def total(name: str) -> int:
        return int(sum(value for found, _, value in samples if found in (name, f"{name}_total")))

    by_position: dict[int, float] = {}
    for name, labels, value in samples:
        if name.removesuffix("_total") == f"{_SPECULATION}accepted_tokens_per_pos":
            position = int(labels["position"])
            by_position[position] = by_position.get(position, 0.0) + value
    return Sums(
        requests=total("vllm:request_success"),
        generated=total("vllm:generation_tokens"),
        running=total("vllm:num_requests_running"),
        drafts=total(f"{_SPECULATION}drafts"),
        proposed=total(f"{_SPECULATION}draft_tokens"),
        accepted=total(f"{_SPECULATION}accepted_tokens"),
        reached=tuple(int(by_position.get(position, 0)) for position in range(max(by_position, default=-1) + 1)),
    )


def _samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is None:
            # A comment, or an empty line.
            continue
        yield match["name"], dict(_LABEL.findall(match["labels"] or "")), float(match["value"])
