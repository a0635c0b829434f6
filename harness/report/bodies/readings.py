"""Layer ids as one convention reads them, which `layers` and `translate` print: a known fault of an engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.facts.known import KnownFault

__all__ = ["KnownFaultBody", "known_fault_body"]


@dataclass(frozen=True)
class KnownFaultBody:
    """A known fault of released engines.

    Attributes:
        first: First release that shows it.
        last: Last release read that shows it.
        effect: The states captured instead, in words.
        thread: Its public thread; `None` if none is known.
        evidence: How it is known.
    """

    first: str
    last: str
    effect: str
    thread: str | None
    evidence: str


def known_fault_body(fault: KnownFault | None) -> KnownFaultBody | None:
    """Return a known fault as it is printed; `None` if the reading does not have one."""
    if fault is None:
        return None
    return KnownFaultBody(fault.first, fault.last, fault.effect.text, fault.thread, fault.evidence)
