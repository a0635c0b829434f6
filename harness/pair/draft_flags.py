"""A draft config's flags, as one reader takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.errors import InputError
from harness.facts.families import Family
from harness.facts.flags import FLAGS, Flag, FlagReader, flag_reader
from harness.facts.keys import EAGLE_SECTION, NESTED, TOP
from harness.pair.config_values import ConfigValues

__all__ = ["DraftFlags", "read_flags", "said"]


@dataclass(frozen=True)
class DraftFlags:
    """A draft's flags as one reader takes them.

    Attributes:
        reader: The convention of the reader, such as `sglang==0.5.23`.
        values: The value of each flag.
        absent: Flags that the config lacks, whose value is the reader's default.
        remarks: What to say about a flag that is in the config, by its name: it is not read, or it has two meanings.
    """

    reader: str
    values: Mapping[str, bool]
    absent: tuple[str, ...]
    remarks: Mapping[str, str]

    @property
    def absence(self) -> str | None:
        """The values of flags that the config lacks, in words; `None` if it has them all."""
        if not self.absent:
            return None
        own = [f"{name} {said(self.values[name])}" for name in self.absent if self.values[name] != FLAGS[name].default]
        many = "1 flag is" if len(self.absent) == 1 else f"{len(self.absent)} flags are"
        but = f", but {', '.join(own)}" if own else ""
        return f"{many} absent: as in a plain EAGLE-3 draft{but}, which is how {self.reader} takes it"

    def differing(self, other: DraftFlags) -> list[str]:
        """Return the flags that another reader takes differently."""
        return [name for name, value in self.values.items() if other.values[name] != value]


def read_flags(config: ConfigValues, convention: str, family: Family) -> DraftFlags:
    """Read a config's flags as the owner of a convention does.

    Args:
        config: The whole config.
        convention: The reader's convention, such as `specforge` or `sglang==0.5.23`.
        family: The kind of config.

    Raises:
        InputError: A flag is not a boolean, two keys of it disagree, or two flags exclude each other.
    """
    reader = flag_reader(convention, family)
    values: dict[str, bool] = {}
    absent: list[str] = []
    remarks: dict[str, str] = {}
    for flag in FLAGS.values():
        found = _written(config, flag)
        _require_one_value(config, found)
        if not found:
            absent.append(flag.name)
        values[flag.name], remark = _taken(found, flag, reader)
        if remark is not None:
            remarks[flag.name] = remark
    if values["norm_before_fc"] and values["fc_norm"]:
        raise InputError(
            "norm_before_fc and fc_norm exclude each other",
            file=config.file,
            key="norm_before_fc and fc_norm",
            found="both true",
            expected="at most one of them true",
        )
    return DraftFlags(reader.name, values, tuple(absent), remarks)


def _taken(found: Mapping[str, bool], flag: Flag, reader: FlagReader) -> tuple[bool, str | None]:
    """Return a flag's value and the remark on it, from the keys it is written under."""
    places = reader.places.get(flag.name, ())
    seen = next((key for place in places for key in found if key.startswith(NESTED) == (place == NESTED)), None)
    if seen is not None:
        return found[seen], reader.remarks.get((flag.name, found[seen]))
    default = reader.default(flag)
    if not found:
        return default, None
    key, value = next(iter(found.items()))
    return default, f"{reader.name} does not read {key} = {said(value)}, and takes {said(default)}"


def said(value: bool) -> str:
    """Return a boolean as JSON writes it."""
    return "true" if value else "false"


def _written(config: ConfigValues, flag: Flag) -> dict[str, bool]:
    """Return every key that a flag is written under, with its value; the nested ones first."""
    nested = config.section(EAGLE_SECTION)
    names = (flag.name,) if flag.legacy is None else (flag.name, flag.legacy)
    return {
        f"{place}{name}": source.boolean(name)
        for place, source in ((NESTED, nested), (TOP, config))
        for name in names
        if name in source
    }


def _require_one_value(config: ConfigValues, found: Mapping[str, bool]) -> None:
    if len(set(found.values())) > 1:
        raise InputError(
            "two keys disagree",
            file=config.file,
            key=" and ".join(found),
            found=" and ".join(said(value) for value in found.values()),
            expected="one value",
        )
