"""Every numbering of layer ids as data: which writers and engines there are, and how each counts.

Nothing here needs a package beyond the standard library: the command line's help lists the names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.facts.rules import AS_IS, PLUS_ONE, IdRule
from harness.facts.sglang import LAST

if TYPE_CHECKING:
    from harness.facts.known import KnownFault

__all__ = ["CONVENTIONS", "LOW_MID_HIGH", "SPECULATORS", "Convention", "convention_names", "newest"]

# Default ids as (numerator of N, divisor, addend): id = n * N // d + a.
Defaults = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Convention:
    """How one writer or engine numbers hidden states.

    Attributes:
        name: The name used in pair files and messages, with the version if the convention changes by version.
        rule: From given ids to boundaries.
        default_ids: Ids meant if a config does not have any; `None` if a missing list is an error.
        source: Where the rule was read.
        default_rule: From default ids to boundaries if not by `rule` (SGLang does not shift its own defaults).
        in_order: Whether order and repetition of the ids survive. Capture loops over ascending layers lose both.
        embedding: Whether boundary 0 can be captured.
        last_reached: Whether boundary N can be captured.
        post_norm_last: Whether N is the state after the final norm, which is not a boundary.
        fault: The known fault of this release of an engine for the target's class.
    """

    name: str
    rule: IdRule
    default_ids: Defaults | None
    source: str
    default_rule: IdRule | None = None
    in_order: bool = True
    embedding: bool = True
    last_reached: bool = True
    post_norm_last: bool = False
    fault: KnownFault | None = None

    def defaults(self, num_layers: int) -> tuple[int, ...] | None:
        """Return the ids meant if none are given, for a target of `num_layers` blocks."""
        if self.default_ids is None:
            return None
        return tuple(n * num_layers // d + a for n, d, a in self.default_ids)


LOW_MID_HIGH: Defaults = ((0, 1, 2), (1, 2, 0), (1, 1, -3))
"""The default of EAGLE, and of every engine: [2, N//2, N-3]."""
_LOW_MID_HIGH_OUTPUTS: Defaults = ((0, 1, 1), (1, 2, -1), (1, 1, -4))
_SPECULATORS_FOUR: Defaults = (*LOW_MID_HIGH, (1, 1, -1))

# SGLang is not among them: its numbering depends on the target's class, and is in `harness.facts.sglang`.
CONVENTIONS: dict[str, Convention] = {
    convention.name: convention
    for convention in (
        Convention("boundary", AS_IS, None, "this project: the ids are boundaries"),
        Convention("eagle", AS_IS, LOW_MID_HIGH, "EAGLE repository: index of the state before block id"),
        Convention("vllm", AS_IS, LOW_MID_HIGH, "vLLM 0.33: captured before block id runs"),
        Convention("specforge", PLUS_ONE, _LOW_MID_HIGH_OUTPUTS, "SpecForge 0.2.0: output of block id"),
        Convention("modelopt", PLUS_ONE, _LOW_MID_HIGH_OUTPUTS, "ModelOpt: output of block id"),
        Convention(
            "transformers",
            AS_IS,
            None,
            "transformers: index into hidden_states, whose last entry is taken after the final norm",
            post_norm_last=True,
        ),
        Convention(
            "speculators==0.3",
            PLUS_ONE,
            _SPECULATORS_FOUR,
            "speculators 0.1 to 0.3, data generation: output of block id, from a set; the default's last is the "
            "verifier's last hidden state",
            in_order=False,
        ),
        Convention("speculators==0.4", AS_IS, LOW_MID_HIGH, "speculators 0.4 and later: state before block id"),
        Convention(
            "sglang-sentinel",
            PLUS_ONE,
            LOW_MID_HIGH,
            "the patched SGLang of the founding incident: output of block id, and -1 as a sentinel for the embedding",
            default_rule=AS_IS,
            in_order=False,
            last_reached=False,
        ),
    )
}

SPECULATORS = (("0.1", "speculators==0.3"), ("0.4", "speculators==0.4"))
"""The first version of speculators for each of its rows in `CONVENTIONS`."""


# The newest version known of each convention that changes by version.
_NEWEST = {"sglang": f"sglang=={LAST}", "speculators": SPECULATORS[-1][1]}


def newest(name: str) -> str:
    """Return a convention's full name: with the newest version known if it changes by version and none is given."""
    return _NEWEST.get(name, name)


def convention_names(suffix: str = "") -> tuple[str, ...]:
    """Return the names of all conventions without a version, in alphabetical order.

    Args:
        suffix: Added to the names of conventions that change by version, such as `[==VERSION]`.
    """
    names = sorted({entry.partition("==")[0] for entry in CONVENTIONS} | _NEWEST.keys())
    return tuple(f"{name}{suffix}" if name in _NEWEST else name for name in names)
