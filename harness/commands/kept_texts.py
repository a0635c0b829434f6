"""Continuations that a record has decoded, kept on disk until its golden is written.

Decoding is what takes hours. A record that is interrupted or refused afterwards goes on from these texts when it is run
again: with a looping prompt left out, with more prompts, or with another floor. They are kept in the user's cache by
everything that determines them. If the cache cannot be written, nothing is kept and nothing else changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping, Sequence

from harness.files import cache_folder, json_text, parse_json
from harness.golden.provenance import machine_info
from harness.pair.pair import Pair
from harness.pair.prompts import Prompt

__all__ = ["KeptTexts"]


class KeptTexts:
    """The texts of one target under one set of decode settings, by the hash of the prompt's ids.

    Args:
        pair: The pair that is recorded.
        hashes: The pair's files, from `harness.golden.provenance.pair_hashes`.
        versions: The library versions that decode.
    """

    def __init__(self, pair: Pair, hashes: Mapping[str, str], versions: Mapping[str, str]) -> None:
        limits, engine = pair.limits, pair.settings.engine
        origin = {
            "target": {name: value for name, value in hashes.items() if name.startswith("target/")},
            "engine": [engine.name, engine.device, engine.dtype],
            "limits": [limits.max_new_tokens, limits.num_steps, sorted(limits.eos_ids)],
            "versions": dict(versions),
            "machine": machine_info(),
        }
        name = hashlib.sha256(json.dumps(origin, sort_keys=True).encode()).hexdigest()[:32]
        self._file = cache_folder() / "texts" / f"{name}.jsonl"
        self._known = self._read(pair.target.vocab_size)

    def __len__(self) -> int:
        return len(self._known)

    def of(self, prompts: Sequence[Prompt]) -> dict[str, tuple[int, ...]]:
        """Return the texts that are known, by prompt id."""
        keyed = ((prompt.id, self._known.get(_key(prompt))) for prompt in prompts)
        return {name: text for name, text in keyed if text is not None}

    def add(self, prompt: Prompt, text: Sequence[int]) -> None:
        """Keep a text that has just been decoded."""
        self._known[_key(prompt)] = tuple(text)
        line = json_text({"prompt": _key(prompt), "text": list(text)}, indent=None) + "\n"
        # In one write at the end of the file: two processes that decode the same target add whole lines.
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(handle, line.encode())
            finally:
                os.close(handle)

    def forget(self) -> None:
        """Remove the file: the golden that has been written has the texts."""
        with contextlib.suppress(OSError):
            self._file.unlink(missing_ok=True)

    def _read(self, vocab_size: int) -> dict[str, tuple[int, ...]]:
        try:
            lines = self._file.read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError):
            return {}
        known = {}
        for line in lines:
            # A process that was killed may have left half a line.
            with contextlib.suppress(ValueError, TypeError, KeyError):
                row = parse_json(line)
                text = tuple(row["text"])
                if text and all(type(token) is int and 0 <= token < vocab_size for token in text):
                    known[str(row["prompt"])] = text
        return known


def _key(prompt: Prompt) -> str:
    # Longer than the prompt's own hash, which is made for people to read.
    return hashlib.sha256(json.dumps(list(prompt.ids)).encode()).hexdigest()
