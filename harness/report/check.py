"""A check as a person reads it, and the report of one that does not pass."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.commands.check import CheckResult
from harness.detectors import State
from harness.detectors.gate import UNDECIDED
from harness.errors import one_line
from harness.report.figures import percent, rate_text
from harness.report.measure import acceptance_table, headline

__all__ = ["STYLES", "check_report", "failure"]

STYLES = {
    State.PASS: "green",
    State.CHANGED: "yellow",
    State.REGRESSION: "bold red",
    State.INCONCLUSIVE: "magenta",
    State.NOT_MEASURED: "magenta",
    State.NOT_APPLICABLE: "dim",
}


def detector_table(result: CheckResult) -> Table:
    """Return each detector's verdict and its sentence."""
    table = Table(box=None, pad_edge=False)
    table.add_column("detector")
    table.add_column("verdict")
    table.add_column("finding", overflow="fold")
    for name, finding in result.findings.items():
        state = Text(str(finding.state), style=STYLES[finding.state])
        table.add_row(name, state, Text(one_line(finding.message)))
    return table


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
    """Return every note, the detectors' first; a line break in one would look like a line of the report."""
    noted = [note for finding in result.findings.values() for note in finding.notes]
    return [one_line(note) for note in (*noted, *result.notes)]


def summary(result: CheckResult) -> str:
    """Return pair, rate, golden and floor on one line."""
    acceptance, recorded = result.measurement.acceptance, result.golden.document.acceptance
    figures, drop = result.findings.acceptance.figures, result.drop
    text = (
        f"{result.pair.name}, {result.measurement.run.engine}: acceptance rate {rate_text(acceptance)} "
        f"(golden {rate_text(recorded)}, floor {percent(None if figures is None else figures.floor)})"
    )
    if drop is not None:
        text += f", drop {drop.estimate:.3f} [{drop.low:.3f}, {drop.high:.3f}]"
    return f"{text}, {acceptance.prompts} prompts"


def failure(result: CheckResult) -> str:
    """Return the report of a result that does not pass: headline, detectors that fired, notes, the next step."""
    lines = [f"{str(result.verdict).upper()} {summary(result)}"]
    if result.attribution is not None:
        lines.append(f"  first stage that differs: {result.attribution.message}")
    quiet = (State.PASS, State.NOT_APPLICABLE)
    fired = {name: finding.message for name, finding in result.findings.items() if finding.state not in quiet}
    lines += [f"  {name}: {one_line(message)}" for name, message in fired.items()]
    if result.undecided and result.verdict not in UNDECIDED:
        # What is proven comes first. A warning next to it ends with the status of what is undecided.
        lines.append(f"  undecided: {', '.join(result.undecided)}{'; exit 3' if result.exit_code == 3 else ''}")
    lines += [f"  note: {note}" for note in notes(result)]
    lines.append(f"  next: {next_step(result)}")
    return "\n".join(lines)


def next_step(result: CheckResult) -> str:
    """Return what to do about a result that does not pass."""
    # In the order of the pipeline: while something is wrong early, advice about a later finding would mislead.
    pair = result.pair
    if result.findings.contract.state is State.REGRESSION:
        fault = pair.wiring.served.fault
        if fault is not None:
            return f"serve the pair with a release of SGLang other than {fault.first} to {fault.last}"
        return f"correct {pair.draft.config_file} or the pair file's trained_as / served_by"
    if result.findings.target.state is State.CHANGED:
        return "the target itself chooses other tokens: check its weights, dtype and kernels before the draft"
    if list(pair.boundaries) != result.golden.document.wiring.boundaries:
        ids = result.golden.document.wiring.ids
        return (
            f"restore {pair.draft.ids_key} = {ids} in {pair.draft.config_file}, or re-record if the draft was retrained"
        )
    if result.verdict is State.INCONCLUSIVE:
        figures = result.findings.acceptance.figures
        needed = None if figures is None else figures.prompts_needed
        return f"measure about {needed} prompts" if needed else "measure more prompts, or longer continuations"
    if result.verdict is State.NOT_MEASURED:
        return "raise decode.max_new_tokens, or choose prompts that are continued"
    return (
        "undo what changed since the golden was recorded, or, if that is intended: "
        f'harness record {pair.file} --reason "…"'
    )
