"""Typed reading of single values out of a checkpoint's `config.json`, with errors that name file and key."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import InputError, quote

__all__ = ["ConfigValues"]

# Sizes are torch's 64-bit integers, and products of them must be too.
_HIGHEST = (1 << 31) - 1


class ConfigValues:
    """A JSON object of a config file, read key by key.

    Args:
        values: The parsed object.
        file: The config file.
        prefix: The keys that lead to the object in the file, such as `eagle_config.`, for messages.
    """

    def __init__(self, values: Mapping[str, Any], file: Path, prefix: str = "") -> None:
        self.values = values
        self.file = file
        self.prefix = prefix

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def section(self, key: str) -> ConfigValues:
        """Return the nested object under `key`, empty if it is absent or null."""
        value = self.values.get(key)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.error(key, value, "an object")
        return ConfigValues(value, self.file, f"{self.prefix}{key}.")

    def integer(self, key: str, default: int | None = None, *, high: int = _HIGHEST) -> int:
        """Return an integer from 1 to `high`."""
        expected = f"an integer from 1 to {high}"
        value = self._get(key, default, expected)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= high:
            raise self.error(key, value, expected)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return a finite number above zero."""
        value = self._get(key, default, "a number above 0")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
            raise self.error(key, value, "a number above 0")
        return float(value)

    def boolean(self, key: str, default: bool | None = None) -> bool:
        """Return true or false."""
        value = self._get(key, default, "true or false")
        if not isinstance(value, bool):
            raise self.error(key, value, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """Return a string."""
        value = self._get(key, default, "a string")
        if not isinstance(value, str):
            raise self.error(key, value, "a string")
        return value

    def integers(self, key: str) -> tuple[int, ...] | None:
        """Return a list of integers, or `None` if the key is absent or null."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(
            isinstance(item, int) and not isinstance(item, bool) for item in value
        ):
            raise self.error(key, value, "a list of integers")
        if not value:
            raise self.error(key, value, "at least one integer")
        return tuple(value)

    def error(self, key: str, found: object, expected: str) -> InputError:
        """Return the error for a value of the wrong kind."""
        return InputError(
            "the value is not usable", file=self.file, key=self.prefix + key, found=quote(found), expected=expected
        )

    def _get(self, key: str, default: Any, expected: str) -> Any:
        value = self.values.get(key)
        if value is None:
            value = default
        if value is None:
            raise InputError(
                "the key is missing",
                file=self.file,
                key=self.prefix + key,
                expected=expected,
                next_step=f"add {self.prefix}{key}, or use a checkpoint whose config has it",
            )
        return value
