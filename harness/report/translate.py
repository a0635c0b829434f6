"""Layer ids in two conventions, as text."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from harness.commands.translate import Translation
from harness.facts.layer_ids import Reading, states_text

__all__ = ["translate_report"]


def translate_report(translation: Translation) -> Group:
    """Return the ids in both conventions, the boundaries between them, and what is lost."""
    read, written = translation.read, translation.written
    lines = [
        _side(read),
        f"boundaries {list(read.boundaries)} of {translation.num_layers} blocks, {translation.architecture}",
    ]
    if written.convention != "boundary":
        lines.append(_side(written))
    lines += [
        f"lost by {side.convention}: boundaries {list(side.missing)}; it captures {states_text(side.captured)}"
        for side in (read, written)
        if side.missing
    ]
    lines += [f"note: {note}" for note in translation.notes]
    lines += [f"note: {name} alone means the newest known, {full}" for name, full in translation.assumed.items()]
    return Group(*(Text(line) for line in lines))


def _side(reading: Reading) -> str:
    return f"ids {list(reading.ids)} as {reading.convention}: {reading.rule} ({reading.source})"
