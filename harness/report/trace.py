"""A pair's pipeline of aux hidden states, on one screen."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from harness.commands.trace import Step, Trace
from harness.errors import one_line
from harness.facts.layer_ids import states_text

__all__ = ["trace_report"]


def trace_report(trace: Trace) -> Group:
    """Return the steps, each with its value and source, and the first step that does not agree."""
    first = trace.first_wrong
    width = max(len(step.name) for step in trace.steps)
    lines: list[RenderableType] = [Text(f"{trace.pair}: from the config to the first proposals")]
    for step in trace.steps:
        mark = {True: "✓", False: "✗", None: " "}[step.ok]
        style = "bold red" if step is first else ("red" if step.ok is False else "")
        lines.append(Text(f"{mark} {step.name:<{width}}  {_value(step)}", style=style))
        lines.append(Text(f"  {'':<{width}}  {one_line(step.source)}", style="dim"))
    lines.append(Text(""))
    if first is None:
        lines.append(Text("every step agrees with those before it", style="green"))
    else:
        lines.append(
            Text(f"first step that does not agree: {first.name}: {one_line(first.note or '')}", style="bold red")
        )
    return Group(*lines)


def _value(step: Step) -> str:
    if step.value is None:
        return step.note or "none"
    if isinstance(step.value, dict):
        return ", ".join(f"{name} {_text(value)}" for name, value in step.value.items())
    return _text(step.value)


def _text(value: Any) -> str:
    # A state that is not any boundary's is null in JSON, and has a word for people.
    return states_text(value) if isinstance(value, list) and None in value else json.dumps(value)
