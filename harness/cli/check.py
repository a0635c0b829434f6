"""`harness check`: measures a pair and gates it against its golden."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli import output
from harness.cli.options import (
    DebugOption,
    DeviceOption,
    DtypeOption,
    EndpointOption,
    EngineOption,
    JsonOption,
    PairArgument,
    PromptsOption,
    StepsOption,
)

__all__ = ["check"]


def check(
    pair: PairArgument,
    engine: EngineOption = None,
    endpoint: EndpointOption = None,
    plain_endpoint: Annotated[
        str | None,
        typer.Option(
            "--plain-endpoint",
            metavar="URL",
            help="An SGLang server of the same target without speculation, which judges the output of the other "
            "server, with the API key in HARNESS_PLAIN_API_KEY. Default: the pair file's, else the measured server.",
            show_default=False,
        ),
    ] = None,
    k: StepsOption = None,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    prompts: PromptsOption = None,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Measure and gate against the golden baseline: exit 0 if the pair passes, 1 if it does not."""
    from harness.commands.check import check as run
    from harness.commands.prepare import prepare
    from harness.report.bodies.check import check_body
    from harness.report.check import check_report

    ready = prepare(
        pair,
        engine=engine,
        dtype=dtype,
        device=device,
        num_steps=k,
        endpoint=endpoint,
        plain_endpoint=plain_endpoint,
    )
    with output.progress(quiet=json) as progress:
        result = run(ready, prompts=prompts, progress=progress)
    if json:
        output.print_json(check_body(result))
    else:
        output.print_report(check_report(result), result.measurement.seconds)
    raise typer.Exit(result.exit_code)
