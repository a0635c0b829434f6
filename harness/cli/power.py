"""`harness power`: simulates, from a pair's golden, which drops its gate can find."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli import output
from harness.cli.options import DebugOption, JsonOption
from harness.errors import InputError

__all__ = ["power"]


def power(
    pair: Annotated[
        str, typer.Argument(metavar="PAIR", help="A pair file, or the name of a built-in pair; its golden is read.")
    ],
    drop: Annotated[
        list[float] | None, typer.Option("--drop", help="A drop of the rate as a share, such as 0.02; may be repeated.")
    ] = None,
    prompts: Annotated[
        list[int] | None, typer.Option("--prompts", min=2, max=4096, help="A number of prompts; may be repeated.")
    ] = None,
    sure: Annotated[
        float,
        typer.Option(
            "--power", min=0.5, max=0.9999, help="Share of comparisons that must find a drop for it to count as found."
        ),
    ] = 0.99,
    simulations: Annotated[
        int, typer.Option("--simulations", min=100, max=1_000_000, help="Comparisons simulated for each figure.")
    ] = 1000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the simulation.")] = 0,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Plot power against drop to this file (.png, .svg or .pdf).")
    ] = None,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Tell which drops of the rate the gate finds with a number of prompts, and how many prompts a given drop needs.

    No model runs: losses are planted in the golden's counts and judged by the gate's own rule.
    """
    from harness.commands.power import Plan, power_table
    from harness.detectors.acceptance import effective_floor
    from harness.golden.find import golden_in_use
    from harness.golden.store import load_golden
    from harness.pair.pair import load_pair
    from harness.report.bodies.power import power_body
    from harness.report.power import draw_power, power_report, require_drawable

    if plot is not None:
        require_drawable(plot)
    ready = load_pair(pair)
    golden = load_golden(golden_in_use(ready))
    gate, document = ready.settings.gate, golden.document
    plan = Plan(
        recorded=[prompt.counts() for prompt in document.prompts],
        margin=gate.margin,
        floor=effective_floor(ready, golden),
        alpha=gate.alpha,
        simulations=simulations,
        seed=seed,
    )
    own = len(plan.recorded)
    drops = sorted(set(drop or (0.005, 0.01, 0.02, 0.05)))
    _require_drops(drops, document.totals.rate)
    counts = sorted(set(prompts or (24, 48, own, 2 * own)))
    with output.progress(quiet=json) as progress:
        progress.begin("simulating", len(drops) * (len(counts) + 1) + 1)
        table = power_table(plan, drops, counts, power=sure, advance=progress.advance)
    if plot is not None:
        draw_power(table, ready.name, plot)
    if json:
        output.print_json(power_body(table, pair=ready.name, golden=str(golden.file)))
    else:
        output.print_report(power_report(table, ready.name))


def _require_drops(drops: list[float], rate: float) -> None:
    for value in drops:
        if not 0 < value < rate:
            raise InputError(
                "the drop is out of range",
                key="--drop",
                found=value,
                expected=f"a share above 0 and below the recorded rate {rate:.4f}, such as 0.02 for two points",
            )
