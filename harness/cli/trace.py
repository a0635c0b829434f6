"""`harness trace`: a pair's hidden-state pipeline, step by step."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli import output
from harness.cli.options import DebugOption, JsonOption

__all__ = ["trace"]


def trace(
    pair: Annotated[str, typer.Argument(metavar="PAIR", help="A pair file or a pair's name.")],
    engine: Annotated[
        str | None,
        typer.Option("--engine", help="The engine to look into: reference or sglang. Default: the pair file's."),
    ] = None,
    static: Annotated[bool, typer.Option("--static", help="From the configs alone, without weights.")] = False,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Trace hidden states from the config's key to the draft's first proposals; exit 1 where two steps disagree.

    Config key, convention and rule, boundaries, tensors captured, concatenation, fc, first proposals: each with its
    value and its source.
    """
    from harness.commands.trace import trace as run
    from harness.report.ids_bodies import trace_body
    from harness.report.trace import trace_report

    result = run(pair, engine=engine, static=static)
    if json:
        output.print_json(trace_body(result))
    else:
        output.print_report(trace_report(result))
    raise typer.Exit(result.exit_code)
