"""`harness trace`: the pipeline of a pair's aux hidden states, step by step."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli import output
from harness.cli.options import DebugOption, JsonOption, PairArgument

__all__ = ["trace"]


def trace(
    pair: PairArgument,
    engine: Annotated[
        str | None,
        typer.Option("--engine", help="The engine to look into: reference or sglang. Default: the pair file's."),
    ] = None,
    static: Annotated[bool, typer.Option("--static", help="Trace the configs alone, without weights.")] = False,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Trace a pair's aux hidden states from the config to the draft's first proposals; exit 1 if two steps disagree.

    The steps are the config key, the convention and its rule, the boundaries, the captured tensors, their
    concatenation, fc and the first proposals, each with its value and source. Boundary k is the aux hidden state after
    block k: 0 is the embedding, N the residual stream before the final norm.
    """
    from harness.commands.trace import trace as run
    from harness.report.bodies.trace import trace_body
    from harness.report.trace import trace_report

    result = run(pair, engine=engine, static=static)
    if json:
        output.print_json(trace_body(result))
    else:
        output.print_report(trace_report(result))
    raise typer.Exit(result.exit_code)
