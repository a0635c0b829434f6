"""`harness record`: measures a pair and writes its golden."""

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
)

__all__ = ["record"]


def record(
    pair: PairArgument,
    engine: EngineOption = None,
    endpoint: EndpointOption = None,
    reason: Annotated[
        str | None, typer.Option("--reason", help="Why the golden changes; required if one is replaced.")
    ] = None,
    skip_loops: Annotated[
        bool, typer.Option("--skip-loops", help="Leave out prompts whose continuation is a loop.")
    ] = False,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Measure and write the golden baseline with its noise floor. Refuses a golden that would be misleading."""
    from harness.commands.prepare import prepare
    from harness.commands.record import record as run
    from harness.report.bodies.record import record_body
    from harness.report.measure import measurement_report

    ready = prepare(pair, engine=engine, dtype=dtype, device=device, endpoint=endpoint)
    with output.progress(quiet=json) as progress:
        result = run(ready, reason=reason, skip_loops=skip_loops, progress=progress)
    if json:
        output.print_json(record_body(result))
    else:
        output.print_report(measurement_report(result.measurement, []), result.measurement.seconds)
        for note in result.notes[len(result.measurement.run.notes) :]:
            output.note(note)
        output.note(f"{'replaced' if result.replaced else 'recorded'} {result.file}")
