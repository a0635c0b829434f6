"""The conformance matrix, for a terminal and as Markdown for the docs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.conformance.asked import AskedIds
from harness.conformance.matrix import AGREES, NOT_JUDGED, RED, SETTER_ONLY, ClassReport, Matrix, Row

__all__ = ["conformance_markdown", "conformance_report"]

_HEADING = """# What SGLang captures for EAGLE-3, class by class

Written by `{command}`; do not edit.

Each class that has `set_eagle3_layers_to_capture` is asked for lists of layer ids on a target of N = {layers} blocks.
A cell says the boundaries of the tensors that come out, in order: 0 is the embedding, k the residual stream after k
blocks, {layers} the one before the final norm, *none* a tensor that is no such state. *raises* means an error, at the
start or in the first forward.

- **ran end to end**: for one of the lists, `[1, 3, 6]`, a whole engine decoded a prompt with a tiny pair of the class,
  and what reached the draft's `fc` was compared with transformers' states of the same weights; the other lists as
  below.
- **ran forward**: the real class ran a prefill with tiny random weights on a CPU, and every captured tensor was
  compared with transformers' states of the same weights.
- **setter only**: the setter's own code was run on stand-in objects, and what the decoder's forward looks at was read
  off its syntax tree.

Every cell is held against `harness.facts`. Classes whose cells are equal share a row.
"""


def conformance_report(matrices: Sequence[Matrix]) -> Group:
    """Return each release's classes, with how each was obtained and whether it agrees with the facts."""
    parts: list[RenderableType] = []
    for matrix in matrices:
        parts += [Text(_summary(matrix)), Text("")]
        table = Table(box=None, pad_edge=False)
        for name in ("", "class", "file", "setter sets, forward tests", "obtained", "verdict"):
            table.add_column(name, overflow="fold")
        for entry in matrix.classes:
            bad = entry.verdict in RED
            mark = "✗" if bad else "" if entry.verdict == NOT_JUDGED else "✓"
            style = "red" if bad else "dim" if entry.verdict == NOT_JUDGED else ""
            obtained = "" if entry.verdict == NOT_JUDGED else entry.obtained
            verdict = Text(_verdict(entry))
            table.add_row(mark, entry.architecture, entry.file, _mechanism(entry), obtained, verdict, style=style)
        parts += [table, Text("")]
        for entry in matrix.red:
            parts += [Text(line, style="red") for line in _differences(entry)]
    return Group(*parts)


def _summary(matrix: Matrix) -> str:
    tallies = [*matrix.verdict_counts.items(), *matrix.obtained_counts.items()]
    counts = ", ".join(f"{count} {name}" for name, count in tallies)
    newer = "" if matrix.version == matrix.judged_as else f", held against the facts of {matrix.judged_as}"
    return f"sglang {matrix.version} ({matrix.origin}){newer}: {len(matrix.classes)} classes: {counts}"


def _verdict(entry: ClassReport) -> str:
    if entry.verdict == AGREES:
        return entry.verdict if entry.reason is None else f"{entry.verdict} (forward: {entry.reason})"
    detail = entry.evidence if entry.evidence is not None and entry.verdict not in (NOT_JUDGED,) else entry.reason
    return f"{entry.verdict}: {detail}" if detail else entry.verdict


def _mechanism(entry: ClassReport) -> str:
    loop = entry.reading.loop
    sets = " and ".join(entry.reading.sets) or "nothing"
    tests = "unknown" if loop is None else " or ".join(loop.tests) or "nothing"
    text = sets if sets == tests else f"{sets}; tests {tests}"
    return text if entry.reading.same_mechanism else f"{text}: captures nothing"


def _differences(entry: ClassReport) -> list[str]:
    """Return what is wrong with a class, a line for each list."""
    lines = [f"{entry.architecture} ({entry.setter}): {_verdict(entry)}"]
    for row in entry.rows:
        if row.verdict in RED:
            facts = (
                str(list(row.facts.boundaries)) if row.facts.boundaries is not None else f"refuse: {row.facts.refused}"
            )
            lines.append(f"  {_ids(row.asked)} ({row.asked.name}): SGLang {row.outcome}, facts {facts}")
    return lines


def _ids(asked: AskedIds) -> str:
    return "None" if asked.ids is None else str(list(asked.ids))


def conformance_markdown(matrices: Sequence[Matrix], command: str) -> str:
    """Return the matrices as one Markdown document.

    Args:
        matrices: One matrix for each release, in the order of the document.
        command: The command line that writes this document.
    """
    text = [_HEADING.format(command=command, layers=matrices[0].num_layers)]
    for matrix in matrices:
        text += [f"## sglang {matrix.version}", "", *_table(matrix), "", *_notes(matrix)]
    return "\n".join(text).rstrip() + "\n"


def _table(matrix: Matrix) -> list[str]:
    judged = [entry for entry in matrix.classes if entry.rows]
    if not judged:
        return ["No class was asked."]
    asked = [row.asked for row in judged[0].rows]
    head = [
        "classes",
        "setter",
        "sets; tests",
        "obtained",
        *(f"`{_ids(one)}`<br>{one.name}" for one in asked),
        "verdict",
    ]
    lines = [_line(head), _line("---" for _ in head)]
    shared: dict[tuple[str, ...], list[str]] = {}
    for entry in judged:
        key = (entry.setter, _mechanism(entry), entry.obtained, *(_cell(row) for row in entry.rows), entry.verdict)
        shared.setdefault(key, []).append(entry.architecture)
    for cells, names in shared.items():
        verdict = cells[-1] if cells[-1] == AGREES else f"**{cells[-1]}**"
        lines.append(_line([", ".join(names), *cells[:-1], verdict]))
    return lines


def _cell(row: Row) -> str:
    if row.outcome.boundaries is None:
        return "raises"
    return ", ".join("*none*" if one is None else str(one) for one in row.outcome.boundaries) or "nothing"


def _notes(matrix: Matrix) -> list[str]:
    """Return what the table leaves out: evidence, why a forward did not run, classes that are not judged, errors."""
    lines: list[str] = []
    for title, entries in (
        (
            "Differences",
            [
                (e.architecture, f"{e.verdict}: {e.evidence or e.reason or 'see the table'}")
                for e in matrix.classes
                if e.verdict not in (AGREES, NOT_JUDGED)
            ],
        ),
        (
            "Why a forward did not run, or not for every list",
            [
                (e.architecture, e.reason)
                for e in matrix.classes
                if e.reason is not None
                and e.verdict not in (NOT_JUDGED,)
                and any(r.obtained != SETTER_ONLY for r in matrix.classes)
            ],
        ),
        ("Not judged", [(e.architecture, e.reason or "") for e in matrix.classes if e.verdict == NOT_JUDGED]),
        ("What is raised", _raised(matrix)),
    ):
        if entries:
            merged: dict[str, list[str]] = {}
            for name, why in entries:
                merged.setdefault(str(why), []).append(name)
            lines += [f"{title}:", "", *(f"- {', '.join(names)}: {why}" for why, names in merged.items()), ""]
    return lines


def _raised(matrix: Matrix) -> list[tuple[str, str]]:
    return [
        (entry.architecture, f"`{_ids(row.asked)}`: {row.outcome.error}")
        for entry in matrix.classes
        for row in entry.rows
        if row.outcome.error is not None
    ]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
