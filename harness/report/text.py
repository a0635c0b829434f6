"""Results as rich renderables and as the paragraph that a failure says."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.acceptance import Acceptance
from harness.check import CheckResult, Measurement
from harness.detectors import State
from harness.errors import one_line
from harness.report.figures import percent, with_error

__all__ = ["STYLES", "check_report", "failure", "measurement_report", "percent", "rate_text", "with_error"]

STYLES = {
    State.PASS: "green",
    State.CHANGED: "yellow",
    State.REGRESSION: "bold red",
    State.INCONCLUSIVE: "magenta",
    State.NOT_MEASURED: "magenta",
    State.NOT_APPLICABLE: "dim",
}


def rate_text(acceptance: Acceptance | None) -> str:
    """Return the acceptance rate with its standard error: `82.3±1.9 %`, `n/a` where nothing was measured."""
    if acceptance is None or acceptance.rate is None:
        return percent(None)
    return f"{with_error(acceptance.rate, acceptance.errors.get('rate'))} %"


def headline(measurement: Measurement) -> str:
    """Return what was measured, on one line."""
    pair, run = measurement.pair, measurement.run
    return (
        f"{pair.name}: {run.engine} on {run.device} in {run.dtype}, {len(run.records)} prompts, k = {run.num_steps}, "
        f"boundaries {list(pair.boundaries)}"
    )


def acceptance_table(measurement: Measurement) -> Table:
    """Return acceptance by category and over all prompts."""
    k = measurement.run.num_steps
    total = measurement.acceptance
    # Narrow enough for a terminal of 80 columns at k = 4.
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("category")
    for name in ("prompts", "rounds", "rate %", "length", *(f"u{step} %" for step in range(k))):
        table.add_column(name, justify="right", no_wrap=True)
    for name, acceptance in measurement.by_category().items():
        table.add_row(Text(one_line(name)), *_cells(acceptance))
    table.add_section()
    table.add_row("all", *_cells(total), style="bold")
    if total.step_accuracy:
        accuracy = [with_error(value, total.errors.get(f"t{step}")) for step, value in enumerate(total.step_accuracy)]
        table.add_row("accuracy", "", "", "", "", *accuracy, style="dim")
    return table


def _cells(acceptance: Acceptance) -> list[str]:
    error = acceptance.errors.get("length")
    length = "n/a" if acceptance.length is None else f"{acceptance.length:.2f}"
    if error is not None and acceptance.length is not None:
        length += f"±{error:.2f}"
    rates = [
        with_error(value, acceptance.errors.get(f"u{step}")) for step, value in enumerate(acceptance.unconditional)
    ]
    rate = with_error(acceptance.rate, acceptance.errors.get("rate"))
    return [str(acceptance.prompts), str(acceptance.rounds), rate, length, *rates]


def detector_table(result: CheckResult) -> Table:
    """Return each detector's verdict and sentence."""
    table = Table(box=None, pad_edge=False)
    table.add_column("detector")
    table.add_column("verdict")
    table.add_column("finding", overflow="fold")
    for name, finding in result.findings.items():
        table.add_row(name, Text(str(finding.state), style=STYLES[finding.state]), Text(finding.message))
    return table


def measurement_report(measurement: Measurement, loops: Sequence[str]) -> Group:
    """Return a measurement's report."""
    parts: list[RenderableType] = [Text(headline(measurement)), acceptance_table(measurement)]
    if loops:
        parts.append(Text(f"loops (they inflate acceptance): {one_line(', '.join(loops))}", style="yellow"))
    return Group(*parts)


def check_report(result: CheckResult) -> Group:
    """Return a check's report: rates, detectors, notes, verdict."""
    parts: list[RenderableType] = [
        Text(headline(result.measurement)),
        acceptance_table(result.measurement),
        Text(""),
        detector_table(result),
        Text(""),
    ]
    parts += [Text(f"note: {note}", style="dim") for note in notes(result)]
    parts.append(Text(f"golden: {result.golden.file}", style="dim"))
    if result.exit_code == 0 and result.verdict is State.PASS:
        parts.append(Text(f"{str(result.verdict).upper()} {summary(result)}", style=STYLES[result.verdict]))
    else:
        parts.append(Text(failure(result), style=STYLES[result.verdict]))
    return Group(*parts)


def notes(result: CheckResult) -> list[str]:
    """Return every note, the detectors' first."""
    return [note for finding in result.findings.values() for note in finding.notes] + list(result.notes)


def summary(result: CheckResult) -> str:
    """Return pair, rate, golden and floor on one line."""
    acceptance, recorded = result.measurement.acceptance, result.golden.document.acceptance
    drop = result.drop
    text = (
        f"{result.pair.name}, {result.measurement.run.engine}: acceptance rate {rate_text(acceptance)} "
        f"(golden {rate_text(recorded)}, floor {percent(result.findings['acceptance'].figures.get('floor'))})"
    )
    if drop is not None:
        text += f", drop {drop['estimate']:.3f} [{drop['low']:.3f}, {drop['high']:.3f}]"
    return f"{text}, {acceptance.prompts} prompts"


def failure(result: CheckResult) -> str:
    """Return what a result that is no pass says: headline, what fired, what differs, the next step."""
    lines = [f"{str(result.verdict).upper()} {summary(result)}"]
    if result.attribution is not None:
        lines.append(f"  first stage that differs: {result.attribution.message}")
    quiet = (State.PASS, State.NOT_APPLICABLE)
    lines += [f"  {name}: {finding.message}" for name, finding in result.findings.items() if finding.state not in quiet]
    lines += [f"  differs: {note}" for note in notes(result)]
    lines.append(f"  next: {next_step(result)}")
    return "\n".join(lines)


def next_step(result: CheckResult) -> str:
    """Return what to do about a result that is no pass."""
    pair = result.pair
    if result.findings["contract"].state is State.REGRESSION:
        return f"correct {pair.draft.config_file} or the pair file's trained_as / served_by"
    if result.findings["target"].state is State.CHANGED:
        return "the target itself chooses other tokens: check its weights, dtype and kernels before the draft"
    if list(pair.boundaries) != result.golden.document.wiring.boundaries:
        ids = result.golden.document.wiring.ids
        return (
            f"restore {pair.draft.ids_key} = {ids} in {pair.draft.config_file}, or re-record if the draft was retrained"
        )
    if result.verdict is State.INCONCLUSIVE:
        needed = result.findings["acceptance"].figures.get("prompts_needed")
        return f"measure about {needed} prompts" if needed else "measure more prompts, or longer continuations"
    if result.verdict is State.NOT_MEASURED:
        return "raise decode.max_new_tokens, or choose prompts that are continued"
    return (
        f'undo what changed since the golden was recorded, or, if it is meant: harness record {pair.file} --reason "…"'
    )
