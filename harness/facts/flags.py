"""The flags of an EAGLE-3 draft's config as data: what each turns on, who reads it from where, and since when.

One key can mean two things, and a reader ignores a key that it does not know: both silently. So a draft's flags are
read twice: as its writer meant them and as the engine that serves it acts on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from packaging.version import Version

from harness.facts.conventions import newest
from harness.facts.families import Family
from harness.facts.keys import NESTED, TOP

__all__ = ["FLAGS", "Flag", "FlagReader", "flag_reader"]


@dataclass(frozen=True)
class Flag:
    """One flag.

    Attributes:
        name: Its key.
        default: Its value in a plain EAGLE-3 draft.
        does: Its effect when true, in words.
        legacy: An older name of its key.
        tensors: Prefix of the tensors that belong to it; empty if it does not have any.
    """

    name: str
    default: bool
    does: str
    legacy: str | None = None
    tensors: str = ""


FLAGS: dict[str, Flag] = {
    flag.name: flag
    for flag in (
        Flag("use_aux_hidden_state", True, "boundaries through fc, instead of the state after the final norm"),
        Flag("norm_before_fc", False, "a norm over the concatenation before fc", tensors="input_norm."),
        Flag("fc_norm", False, "a norm of each boundary before the concatenation", "use_aux_norm", "fc_norm."),
        Flag("norm_before_residual", False, "a residual that starts from the normed state"),
        Flag("norm_output", False, "the state after the final norm is recycled"),
    )
}


@dataclass(frozen=True)
class FlagReader:
    """A trainer or engine as a reader of a draft's flags.

    Attributes:
        name: Its convention, with the version.
        places: Where it looks for each flag, first place first; it does not read a flag that is missing here.
        defaults: Its defaults that differ from the flag's own.
        remarks: What to say about a flag that is in the config, by flag and value.
    """

    name: str
    places: Mapping[str, tuple[str, ...]]
    defaults: Mapping[str, bool] = field(default_factory=dict)
    remarks: Mapping[tuple[str, bool], str] = field(default_factory=dict)

    def default(self, flag: Flag) -> bool:
        """Return the value that it takes if the config does not have the flag."""
        return self.defaults.get(flag.name, flag.default)


_EVERYWHERE: Mapping[str, tuple[str, ...]] = dict.fromkeys(FLAGS, (NESTED, TOP))

# SGLang's draft classes, by the first of the 15 releases read that knows the flag. None reads `norm_before_residual`.
_SGLANG: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "use_aux_hidden_state": ("0.5.8", (NESTED,)),
    "fc_norm": ("0.5.12", (TOP,)),
    "norm_output": ("0.5.12", (TOP,)),
    "norm_before_fc": ("0.5.18", (NESTED, TOP)),
}
_SGLANG_MLA_LACKS = ("norm_before_fc",)

# Until sgl-project/SpecForge#879 (September 2026) the key chose whether the head saw a normed state, and the recycled
# state was never normed; since then it means the same as in SGLang, vLLM and speculators. A checkpoint does not say
# which.
_SPECFORGE_REMARKS = {
    (
        "norm_output",
        True,
    ): "norm_output: SpecForge before #879 recycled the state before the final norm whatever this says: such a "
    "draft needs false",
    (
        "norm_output",
        False,
    ): "norm_output: SpecForge before #879 left out the norm before the head for this: no engine runs such a draft",
}


def flag_reader(convention: str, family: Family) -> FlagReader:
    """Return how the owner of a layer-id convention (`specforge`, `sglang==0.5.23`) reads flags.

    Args:
        convention: A known convention.
        family: The kind of draft config.
    """
    name = newest(convention)
    base, _, version = name.partition("==")
    if base == "sglang":
        return FlagReader(name, _sglang(Version(version), mla=family.name == "deepseek"))
    # vLLM takes norm_before_residual as true if a speculators config does not have it; speculators itself takes false.
    defaults = {"norm_before_residual": True} if base == "vllm" and family.name == "speculators" else {}
    return FlagReader(name, _EVERYWHERE, defaults, _SPECFORGE_REMARKS if base == "specforge" else {})


def _sglang(version: Version, *, mla: bool) -> dict[str, tuple[str, ...]]:
    return {
        name: places
        for name, (first, places) in _SGLANG.items()
        if version >= Version(first) and not (mla and name in _SGLANG_MLA_LACKS)
    }
