"""`harness faults`: wrong wires put into a pair, and which detector sees each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli import output
from harness.cli.options import DebugOption, JsonOption, PairArgument

__all__ = ["faults"]


def faults(
    pair: PairArgument,
    other: Annotated[
        str | None,
        typer.Option(
            "--other",
            metavar="0,2,15",
            help="Boundaries that an incident serves instead of the right ones, such as those that another draft of "
            "the same target reads. Default: no incident is tried.",
            show_default=False,
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write",
            metavar="PAGE",
            help="Also write the tables into this Markdown page, between the pair's two marks.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Try every wrong wire on a pair, and say what it costs and which detector sees it.

    The golden's reference continuations are replayed by the reference engine with each fault in turn: wrong boundaries
    (boundary k is the aux hidden state after block k), wrong states, a wrong draft. The right wiring on the target in
    bfloat16, 8 and 4 bits follows for comparison, and decides nothing.

    Exit status: 0 if each fault is seen by some detector and the right wiring by none, 1 if not, 2 bad usage or input.
    """
    from harness.commands.faults import faults as run
    from harness.commands.prepare import prepare
    from harness.report.bodies.faults import faults_body
    from harness.report.faults import faults_report, require_place, write_tables

    ready = prepare(pair, engine="reference")
    if write is not None:
        # Before minutes are spent on tables that the page does not take.
        require_place(write, ready.name)
    with output.progress(quiet=json) as progress:
        result = run(ready, other=other, progress=progress)
    if write is not None:
        write_tables(write, result)
    if json:
        output.print_json(faults_body(result))
    else:
        output.print_report(faults_report(result), result.seconds)
    raise typer.Exit(result.exit_code)
