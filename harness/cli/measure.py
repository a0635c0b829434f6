"""`harness measure`: prints acceptance rates, without a verdict."""

from __future__ import annotations

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

__all__ = ["measure"]


def measure(
    pair: PairArgument,
    engine: EngineOption = None,
    endpoint: EndpointOption = None,
    k: StepsOption = None,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    prompts: PromptsOption = None,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Measure acceptance rates, without a golden and without a verdict."""
    from harness.commands.measure import looping
    from harness.commands.measure import measure as run
    from harness.commands.prepare import prepare
    from harness.report.bodies.measure import measure_body
    from harness.report.measure import measurement_report

    ready = prepare(pair, engine=engine, dtype=dtype, device=device, num_steps=k, endpoint=endpoint)
    with output.progress(quiet=json) as progress:
        result = run(ready, prompts=prompts, progress=progress)
    if json:
        output.print_json(measure_body(result))
    else:
        output.print_report(measurement_report(result, looping(result.run.records)), result.seconds)
