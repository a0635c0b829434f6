"""Goldens that commands other than `check` are given, or cannot write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from suites.support.damage.editing import GOLDEN, PAIR, Damage, into_file, into_folder, pair_text, remove, set_value


def _golden(name: str, apply: Callable[[Path], object], command: str, *says: str) -> Damage:
    others = ("PAIR",) if command == "diff" else ()
    return Damage(f"golden {command}, {name}", apply, says, ("golden", command, "PAIR", *others))


_RECORD = [
    Damage(
        "golden's name taken by a folder",
        into_folder(GOLDEN),
        (GOLDEN, "cannot be read", "Next:"),
        ("record", "PAIR", "--reason", "new"),
    ),
    Damage(
        "golden damaged and recorded over",
        set_value(GOLDEN, "totals", "rounds", to=1),
        (GOLDEN, "totals.rounds is 1", "Next:"),
        ("record", "PAIR", "--reason", "new"),
    ),
    Damage(
        "golden folder a file when recording",
        into_file("golden/random"),
        ("golden/random", "cannot be written", "Next: make it writable"),
        ("record", "PAIR"),
    ),
    Damage(
        "golden key a file when recording",
        pair_text("[decode]", 'golden = "prompts.jsonl"\n[decode]'),
        ("prompts.jsonl/random", "cannot be written", "Next: make it writable"),
        ("record", "PAIR"),
    ),
    Damage(
        "golden key of 5,000 letters",
        pair_text("[decode]", f'golden = "{"g" * 5000}"\n[decode]'),
        ("gggg", "cannot be written", "Next: make it writable"),
        ("record", "PAIR"),
    ),
    Damage(
        "golden key with a NUL",
        pair_text("[decode]", 'golden = "a\\u0000b"\n[decode]'),
        (PAIR, "golden", "expected"),
        ("record", "PAIR"),
    ),
    Damage(
        "golden key of an unknown user",
        pair_text("[decode]", 'golden = "~nobody-at-all/g"\n[decode]'),
        (PAIR, "golden", "~nobody-at-all", "expected"),
    ),
]

_GOLDEN = [
    _golden("missing", remove(GOLDEN), "show", "golden/random", "has no golden", "Next: harness record"),
    _golden("missing", remove(GOLDEN), "verify", "golden/random", "has no golden", "Next: harness record"),
    _golden("damaged", set_value(GOLDEN, "totals", "rounds", to=1), "show", GOLDEN, "totals.rounds is 1", "Next:"),
    _golden("damaged", set_value(GOLDEN, "totals", "rounds", to=1), "diff", GOLDEN, "totals.rounds is 1", "Next:"),
    Damage(
        "golden file that is none",
        lambda _: None,
        ("nowhere.json", "does not exist", "Next:"),
        ("golden", "show", "nowhere.json"),
    ),
]

GOLDEN_COMMANDS = [*_RECORD, *_GOLDEN]
