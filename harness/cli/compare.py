"""`harness compare`: compares two pairs, engines or results with each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import output
from harness.cli.options import DebugOption, JsonOption, PromptsOption

if TYPE_CHECKING:
    from harness.commands.compare import Side
    from harness.engines.base import Progress

__all__ = ["compare"]


def compare(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A", help="A pair (file or name), or a JSON result of harness measure or harness check."
        ),
    ],
    b: Annotated[
        str, typer.Argument(metavar="B", help="The same, to compare with A; may be the same pair with another engine.")
    ],
    engine_a: Annotated[
        str | None, typer.Option("--engine-a", help="Engine for A; see harness measure --help.")
    ] = None,
    engine_b: Annotated[str | None, typer.Option("--engine-b", help="Engine for B.")] = None,
    endpoint_a: Annotated[
        str | None, typer.Option("--endpoint-a", metavar="URL", help="Address of a running server for A.")
    ] = None,
    endpoint_b: Annotated[
        str | None, typer.Option("--endpoint-b", metavar="URL", help="Address of a running server for B.")
    ] = None,
    dtype_a: Annotated[str | None, typer.Option("--dtype-a", help="dtype for A.")] = None,
    dtype_b: Annotated[str | None, typer.Option("--dtype-b", help="dtype for B.")] = None,
    prompts: PromptsOption = None,
    margin: Annotated[
        float, typer.Option(min=0.0001, max=1.0, help="Greatest drop of the rate that does not matter, as a share.")
    ] = 0.01,
    alpha: Annotated[float, typer.Option(min=1e-9, max=0.5, help="Accepted chance of a wrong outcome.")] = 0.001,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Compare two pairs, engines or results, paired by prompt: exit 1 if B accepts fewer tokens than A."""
    from harness.commands.compare import compare as run
    from harness.report.bodies.compare import compare_body
    from harness.report.compare import comparison_report

    with output.progress(quiet=json) as progress:
        first = _side(a, engine_a, endpoint_a, dtype_a, prompts, progress)
        second = _side(b, engine_b, endpoint_b, dtype_b, prompts, progress)
    result = run(first, second, margin=margin, alpha=alpha)
    if json:
        output.print_json(compare_body(result))
    else:
        output.print_report(comparison_report(result))
    raise typer.Exit(result.exit_code)


def _side(
    name: str, engine: str | None, endpoint: str | None, dtype: str | None, prompts: str | None, progress: Progress
) -> Side:
    from harness.commands.compare import read_result, side_of
    from harness.commands.measure import measure
    from harness.commands.prepare import prepare

    if name.endswith(".json"):
        return read_result(Path(name))
    pair = prepare(name, engine=engine, endpoint=endpoint, dtype=dtype)
    return side_of(measure(pair, prompts=prompts, progress=progress))
