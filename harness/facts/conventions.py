"""Layer-id conventions as data: the one place where an id becomes a boundary.

A boundary is the harness' only name for a hidden state inside the target: 0 is the embedding output, k the residual
stream after k decoder blocks, N (the number of blocks) the stream before the final norm. Past this module nothing adds
or subtracts one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import InputError

__all__ = ["CONVENTIONS", "Convention", "Reading", "find_convention", "read_ids"]


@dataclass(frozen=True)
class Convention:
    """How one writer or engine numbers hidden states.

    Attributes:
        name: The name used in pair files and messages.
        offset: The boundary is the id plus this.
        default_ids: Ids meant when a config has none, as (numerator of N, divisor, addend) triples: id = n*N//d + a.
            `None` where a missing list has no meaning.
        default_offset: As `offset`, for the default ids (SGLang does not shift its own defaults).
        in_order: Whether order and repetition of the ids survive. Capture loops over ascending layers lose both.
        last_reached: Whether boundary N can be captured at all.
        source: Where the rule was read.
    """

    name: str
    offset: int
    default_ids: tuple[tuple[int, int, int], ...] | None
    source: str
    default_offset: int | None = None
    in_order: bool = True
    last_reached: bool = True

    def defaults(self, num_layers: int) -> tuple[int, ...] | None:
        """Return the ids meant when none are given, for a target of `num_layers` blocks."""
        if self.default_ids is None:
            return None
        return tuple(n * num_layers // d + a for n, d, a in self.default_ids)


@dataclass(frozen=True)
class Reading:
    """Ids read in one convention.

    Attributes:
        convention: The convention's name, with the version where one was given.
        ids: The ids as given, or the convention's default.
        boundaries: What they stand for, in the order in which they are concatenated.
        defaulted: Whether the ids are the convention's default because the checkpoint has none.
        rule: The rule in words.
    """

    convention: str
    ids: tuple[int, ...]
    boundaries: tuple[int, ...]
    defaulted: bool
    rule: str


_LOW_MID_HIGH = ((0, 1, 2), (1, 2, 0), (1, 1, -3))
_LOW_MID_HIGH_OUTPUTS = ((0, 1, 1), (1, 2, -1), (1, 1, -4))

CONVENTIONS: dict[str, Convention] = {
    convention.name: convention
    for convention in (
        Convention("boundary", 0, None, "this project: the ids are boundaries"),
        Convention("eagle", 0, _LOW_MID_HIGH, "EAGLE repository: index of the state before block id"),
        Convention("vllm", 0, _LOW_MID_HIGH, "vLLM 0.33: captured before block id runs"),
        Convention("specforge", 1, _LOW_MID_HIGH_OUTPUTS, "SpecForge 0.2.0: output of block id"),
        Convention("modelopt", 1, _LOW_MID_HIGH_OUTPUTS, "ModelOpt: output of block id"),
        Convention(
            "sglang",
            1,
            _LOW_MID_HIGH,
            "SGLang 0.4.10.post2 to 0.5.23, most model classes: output of block id, in ascending order",
            default_offset=0,
            in_order=False,
            last_reached=False,
        ),
    )
}

# Architectures whose SGLang model class follows the common rule in every release read (0.4.10.post2 to 0.5.23).
_SGLANG_COMMON = frozenset(
    {"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "Glm4MoeForCausalLM"}
)


def find_convention(name: str, *, architecture: str, file: object = None, key: str | None = None) -> Convention:
    """Return the convention called `name` (as `specforge` or `sglang==0.5.23`) for a target architecture.

    Raises:
        InputError: The convention is unknown, or has no rule for the architecture.
    """
    base, _, version = name.partition("==")
    where = str(file) if file is not None else None
    if base not in CONVENTIONS:
        raise InputError(
            "unknown layer-id convention", file=where, key=key, found=name, expected=" or ".join(sorted(CONVENTIONS))
        )
    if base == "sglang" and architecture not in _SGLANG_COMMON:
        raise InputError(
            f"no rule is known for how {name} reads layer ids of this target",
            file=where,
            key=key,
            found=architecture,
            expected=" or ".join(sorted(_SGLANG_COMMON)),
            next_step='leave the key out and give the boundaries that are captured with trained_as = "boundary"',
        )
    if version and base != "sglang":
        raise InputError("this convention is not kept by version", file=where, key=key, found=name, expected=base)
    return CONVENTIONS[base]


def read_ids(
    ids: Sequence[int] | None,
    convention: str,
    *,
    num_layers: int,
    architecture: str,
    file: object = None,
    key: str | None = None,
) -> Reading:
    """Translate layer ids to boundaries.

    Args:
        ids: The ids as written, or `None` where the checkpoint has none.
        convention: The convention's name, with `==version` for an engine that has versions.
        num_layers: The target's number of decoder blocks, N.
        architecture: The target's architecture, since some engines number by model class.
        file: The file that holds the ids, for messages.
        key: The key that holds the ids, for messages.

    Raises:
        InputError: The convention is unknown, has no default, or an id stands for no boundary of this target.
    """
    rule = find_convention(convention, architecture=architecture)
    defaulted = ids is None
    offset = rule.offset
    if ids is None:
        ids = rule.defaults(num_layers)
        if ids is None:
            raise InputError(
                f"no layer ids are given and the convention {convention!r} has no default",
                file=str(file) if file is not None else None,
                key=key,
                next_step="write eagle_config.eagle_aux_hidden_state_layer_ids into the draft's config.json",
            )
        offset = rule.offset if rule.default_offset is None else rule.default_offset
    boundaries = [value + offset for value in ids]
    for value, boundary in zip(ids, boundaries, strict=True):
        if not 0 <= boundary <= num_layers:
            raise InputError(
                f"layer id {value} stands for no hidden state of this target",
                file=str(file) if file is not None else None,
                key=key,
                found=f"boundary {boundary} by the rule of {convention} (id + {offset})",
                expected=f"a boundary from 0 (embedding) to {num_layers} (before the final norm), "
                f"that is an id from {-offset} to {num_layers - offset}",
                next_step="correct the ids, or name the convention that they were written in with trained_as",
            )
    if not rule.last_reached:
        boundaries = [boundary for boundary in boundaries if boundary < num_layers]
    if not rule.in_order:
        boundaries = sorted(set(boundaries))
    return Reading(
        convention=convention,
        ids=tuple(ids),
        boundaries=tuple(boundaries),
        defaulted=defaulted,
        rule=f"boundary = id + {offset}" if offset else "boundary = id",
    )
