"""A draft's boundaries by engine and trainer, as a table."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.commands.layers import EngineLayers, LayersReport
from harness.facts.keys import EAGLE_SECTION, IDS_KEY
from harness.facts.layer_ids import states_text

__all__ = ["layers_report"]


def layers_report(report: LayersReport) -> Group:
    """Return the boundaries that each engine and trainer would use, with those marked that differ."""
    config = report.config
    ids = (
        f"{config.key} = {list(config.ids)}" if config.ids is not None else "without layer ids: each takes its default"
    )
    assumed = ", the likeliest writer of this kind of config; name another with --trained-as" if report.assumed else ""
    lines: list[RenderableType] = [
        Text(f"{config.file}: {config.family.name}, {ids}"),
        Text(f"trained as {report.trained_as}{assumed}: boundaries {_list(report.trained)}"),
        Text(""),
    ]
    table = Table(box=None, pad_edge=False)
    for name in ("", "convention", "boundaries", "write instead", "rule"):
        table.add_column(name, overflow="fold")
    wrong = set(report.disagreements)
    for name, engine in report.engines.items():
        reading = engine.reading
        boundaries = engine.reason if reading is None else states_text(reading.captured)
        rule = "" if reading is None else ("its default; " if reading.defaulted else "") + reading.rule
        style = "red" if name in wrong else ""
        mark = "✗" if name in wrong else ("" if reading is None else "✓")
        table.add_row(
            mark, name, Text(boundaries or ""), Text(_advice(engine, differs=name in wrong)), Text(rule), style=style
        )
    lines.append(table)
    faults = dict.fromkeys(engine.reading.fault for engine in report.engines.values() if engine.reading is not None)
    lines += [Text(f"\nknown fault: {fault}") for fault in faults if fault is not None]
    if config.nested is None and config.top is not None:
        lines += [Text(""), Text(f"SGLang reads {IDS_KEY} only under {EAGLE_SECTION}; here it is at the top level")]
    return Group(*lines)


def _list(boundaries: tuple[int, ...] | None) -> str:
    return "unknown, see below" if boundaries is None else str(list(boundaries))


def _advice(engine: EngineLayers, *, differs: bool) -> str:
    if not differs:
        return ""
    if engine.write is not None:
        return str(list(engine.write))
    fault = None if engine.reading is None else engine.reading.fault
    if fault is not None:
        # The whole sentence is below the table, once for all releases that share the fault.
        return f"nothing: {fault.thread or 'known fault, see below'}"
    return f"nothing: {engine.cannot}"
