"""Reports on goldens, for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.detectors import unfed
from harness.errors import one_line
from harness.golden.difference import Difference
from harness.golden.orphans import OrphanReport
from harness.golden.store import Golden
from harness.report.figures import percent, rate_text, with_error

__all__ = ["difference_report", "golden_report", "orphans_report", "verification_report"]


def golden_report(golden: Golden) -> Group:
    """Return a golden's origin, settings, rates, noise floors and history."""
    document = golden.document
    totals, recorded = document.totals, document.acceptance
    error = recorded.errors["length"]
    length = f"length {totals.length:.2f}" + ("" if error is None else f"±{error:.2f}")
    wiring = document.wiring
    table = Table.grid(padding=(0, 2))
    rows = {
        "golden": str(golden.file),
        "recorded": f"{document.recorded_at} at {document.commit or 'no commit'}: {document.reason}",
        "class": f"{golden.golden_class} on {document.machine.get('processor', 'an unknown processor')}",
        "versions": ", ".join(f"{name} {version}" for name, version in document.versions.items()),
        "wiring": f"ids {wiring.ids} as {wiring.trained_as}: boundaries {wiring.boundaries}",
        "decode": ", ".join(f"{name} {value}" for name, value in document.decode.items()),
        "rate": f"{rate_text(recorded)}, {length}, {totals.prompts} prompts, {totals.rounds} rounds",
        "floor": percent(document.floor),
    }
    rows |= {
        f"noise, {dtype}": "\n".join(
            f"{arm.changed} of {arm.windows} windows, {arm.likelihood:.1e} nats: {arm.how}" for arm in noise.arms
        )
        for dtype, noise in document.noise.items()
    }
    if document.runs:
        rows["runs"] = "; ".join(document.runs)
    if document.left_out:
        rows["left out"] = ", ".join(prompt.id for prompt in document.left_out) + ": loops"
    rows["ends at"] = "unknown, as in version 1" if document.eos_ids is None else f"token ids {document.eos_ids}"
    rows |= {f"{name} revision": commit for name, commit in document.revisions.items()}
    missing = unfed(golden)
    if missing:
        rows["does not feed"] = ", ".join(missing)
    sight = document.blindness
    rows["sight"] = (
        "not checked" if sight is None else f"boundaries {sight.boundaries} are seen by {', '.join(sight.seen_by)}"
    )
    for name, value in rows.items():
        table.add_row(name, Text(value))
    for entry in document.history:
        text = (
            f"{entry.recorded_at}: rate {with_error(entry.rate, entry.standard_error)} %, floor {percent(entry.floor)}"
        )
        text += f": {entry.reason}"
        table.add_row("before", Text(text))
    return Group(table)


def difference_report(result: Difference) -> Group:
    """Return the difference between two goldens, prompt by prompt."""
    before, after = result.before.document.acceptance, result.after.document.acceptance
    parts: list[RenderableType] = [Text(f"rate {rate_text(before)} -> {rate_text(after)}")]
    if result.same:
        return Group(*parts, Text("no difference"))
    parts += [Text(f"{name}: {first} -> {second}") for name, (first, second) in result.settings.items()]
    if result.removed:
        parts.append(Text(f"removed: {', '.join(result.removed)}"))
    if result.added:
        parts.append(Text(f"added: {', '.join(result.added)}"))
    table = Table(box=None, pad_edge=False)
    for name in ("prompt", "before", "after", "continuation", "positions with another chain"):
        table.add_column(name, justify="left" if name == "prompt" else "right")
    for prompt in result.prompts:
        sides = [f"{accepted}/{proposed}" for accepted, proposed in (prompt.before, prompt.after)]
        positions = "n/a" if prompt.proposals is None else str(prompt.proposals)
        table.add_row(prompt.id, *sides, "differs" if prompt.text else "same", positions)
    return Group(*parts, table)


def verification_report(problems: dict[str, list[str]]) -> Group:
    """Return each golden with its problems."""
    lines: list[RenderableType] = []
    for file, found in problems.items():
        lines.append(Text(f"{file}: {'verified' if not found else f'{len(found)} problems'}"))
        lines += [Text(f"  {problem}") for problem in found]
    return Group(*lines)


def orphans_report(result: OrphanReport) -> Group:
    """Return the unused and unreadable files among the goldens."""
    lines: list[RenderableType] = [Text(f"{one_line(str(orphan.path))}: {orphan.problem}") for orphan in result.orphans]
    count = f"{len(result.orphans)} findings" if len(result.orphans) != 1 else "1 finding"
    pairs = f"{len(result.pairs)} pairs" if len(result.pairs) != 1 else "1 pair"
    lines.append(Text(f"{count} in {one_line(str(result.home))}, used by {pairs} below {one_line(str(result.root))}"))
    if result.orphans:
        lines.append(Text("nothing is removed; to remove one that is no longer wanted: git rm -r PATH"))
    return Group(*lines)
