"""Reports on a nightly: Markdown for the step summary and the issue, and an HTML page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import jinja2

from harness.nightly.history import PastRun
from harness.nightly.results import Failure, Nightly, PairRow
from harness.report.figures import with_error

__all__ = ["issue_body", "issue_title", "page", "summary"]

# GitHub refuses issue texts of 65,536 characters and more; what is cut here is in the log and in the artifact.
_TEXT, _ALL = 6000, 48_000
_NIGHTS = 14
_TESTS = 8


def issue_title(name: str) -> str:
    """Return the title of the issue about a nightly: always the same, because the open issue is found by its title."""
    return f"Acceptance nightly is not green: {name}"


def issue_body(nightly: Nightly, past: Sequence[PastRun]) -> str:
    """Return the text of tonight's issue or comment: the diagnosis, or that the nightly is green again."""
    since = _since(nightly, past)
    parts = [f"**{nightly.state}**: {nightly.why}", _run_line(nightly), *([since] if since else [])]
    return "\n\n".join([*parts, *_sections(nightly, past)]) + "\n"


def summary(nightly: Nightly, past: Sequence[PastRun]) -> str:
    """Return the step summary, as Markdown."""
    heading = f"## Acceptance nightly {nightly.run.name}: {nightly.state}"
    return "\n\n".join([heading, nightly.why, _run_line(nightly), *_sections(nightly, past)]) + "\n"


def _run_line(nightly: Nightly) -> str:
    run = nightly.run
    parts = [f"run {run.id}", run.time]
    if run.commit:
        parts.append(f"commit {run.commit[:12]}")
    if run.url:
        parts.append(f"[log]({run.url})")
    return " · ".join(parts)


def _since(nightly: Nightly, past: Sequence[PastRun]) -> str | None:
    """Return since when a nightly has not been green; `None` if it is green or the history is empty."""
    before = [run for run in past if run.id != nightly.run.id]
    if nightly.green or not before:
        return None
    greens = [run for run in before if run.green]
    if not greens:
        return f"It was not green in any of the {len(before)} earlier runs in the history."
    last = greens[-1]
    nights = len(before) - before.index(last)
    where = f" ([log]({last.url}))" if last.url else ""
    which = f", commit {last.commit[:12]}" if last.commit else ""
    return f"Last green: {last.time}{which}{where}, {nights} {'run' if nights == 1 else 'runs'} ago."


def _sections(nightly: Nightly, past: Sequence[PastRun]) -> Iterator[str]:
    if nightly.pairs:
        yield "\n".join(_table(nightly.pairs, past, nightly.run.id))
    if nightly.failures:
        yield "### Failures"
        yield from _failures(nightly.failures)
    if nightly.not_checked:
        yield "### Not checked on this machine"
        yield "\n".join(f"- {_inline(line)}" for line in nightly.not_checked)
    if len(past) > 1:
        yield f"### The last {min(len(past), _NIGHTS)} runs"
        yield "\n".join(_trend(past[-_NIGHTS:]))


def _table(rows: Sequence[PairRow], past: Sequence[PastRun], run: str) -> Iterator[str]:
    yield "| pair | verdict | rate % | before | length | drop | prompts | engine | first stage that differs |"
    yield "|---|---|---:|---:|---:|---:|---:|---|---|"
    for row in rows:
        before = next(
            (entry.pairs[row.pair] for entry in reversed(past) if entry.id != run and row.pair in entry.pairs), None
        )
        cells = (
            row.pair,
            row.verdict,
            with_error(row.rate, row.error),
            "" if before is None else with_error(before["rate"], before["error"]),
            "n/a" if row.length is None else f"{row.length:.2f}",
            "n/a" if row.drop is None else f"{row.drop:+.4f}",
            str(row.prompts),
            row.engine,
            row.first_stage or "",
        )
        yield f"| {' | '.join(_inline(cell) for cell in cells)} |"


def _failures(failures: Sequence[Failure]) -> Iterator[str]:
    left = _ALL
    for failure in failures:
        text = _shortened(failure.text)
        if len(text) > left:
            yield f"{_inline(failure.where)} failed too: see the log."
            continue
        left -= len(text)
        # Longer than any row of backticks in the text: that row would end the block.
        fence = "`" * max(3, 1 + max((len(ticks) for ticks in re.findall("`+", text)), default=0))
        more = len(failure.tests) - _TESTS
        names = ", ".join(failure.tests[:_TESTS]) + (f" and {more} more" if more > 0 else "")
        yield f"**{_inline(failure.where)}**: {_inline(names)}"
        yield f"{fence}text\n{text}\n{fence}"


def _shortened(text: str) -> str:
    """Return a text cut in the middle if it is too long: the cause is at the start or at the end."""
    if len(text) <= _TEXT:
        return text
    half = _TEXT // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} more characters in the log …\n{text[-half:]}"


def _trend(runs: Sequence[PastRun]) -> Iterator[str]:
    names = sorted({name for run in runs for name in run.pairs})
    yield f"| run | state | {' | '.join(_inline(name) for name in names)} |"
    yield f"|---|---|{'---:|' * len(names)}"
    for run in reversed(runs):
        cells = (
            with_error(run.pairs[name]["rate"], run.pairs[name]["error"]) if name in run.pairs else "" for name in names
        )
        day = f"[{run.time}]({run.url})" if run.url else run.time
        yield f"| {day} | {_inline(run.state)} | {' | '.join(cells)} |"


def _inline(text: str) -> str:
    """Return text that stays in its table cell and does not notify GitHub users."""
    text = " ".join(text.split())
    for letter in "\\`*_[]<>|":
        text = text.replace(letter, f"\\{letter}")
    return text.replace("@", "@\u2060")


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Acceptance nightly {{ nightly.run.name }}: {{ nightly.state }}</title>
<style>
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 76em; padding: 0 1em; color: #1b1f24; }
table { border-collapse: collapse; margin: 1em 0; }
th, td { padding: .25em .7em; border-bottom: 1px solid #d5dae0; text-align: left; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
pre { background: #f4f6f8; padding: 1em; overflow-x: auto; }
.green, .pass { color: #1a7f37; } .red, .regression { color: #b60205; font-weight: 600; }
.changed, .unfinished, .unchecked, .inconclusive, .not_measured { color: #9a6700; }
</style>
<h1>Acceptance nightly {{ nightly.run.name }}: <span class="{{ nightly.state }}">{{ nightly.state }}</span></h1>
<p>{{ nightly.why }}</p>
<p>run {{ nightly.run.id }} · {{ nightly.run.time }}
{% if nightly.run.commit %} · commit {{ nightly.run.commit[:12] }}{% endif %}
{% if nightly.run.url %} · <a href="{{ nightly.run.url }}">log</a>{% endif %}</p>
{% if nightly.pairs %}
<table><tr><th>pair<th>verdict<th>rate %<th>length<th>drop<th>prompts<th>engine<th>first stage that differs</tr>
{% for row in nightly.pairs %}
<tr><td title="{{ row.file }}">{{ row.pair }}<td class="{{ row.verdict }}">{{ row.verdict }}
<td class="n">{{ rate(row.rate, row.error) }}<td class="n">{{ "n/a" if row.length is none else "%.2f" % row.length }}
<td class="n">{{ "n/a" if row.drop is none else "%+.4f" % row.drop }}<td class="n">{{ row.prompts }}
<td>{{ row.engine }}<td>{{ row.first_stage or "" }}</tr>
{% endfor %}
</table>
{% endif %}
{% if nightly.failures %}<h2>Failures</h2>
{% for failure in nightly.failures %}
<h3>{{ failure.where }}: {{ failure.tests | join(", ") }}</h3>
<pre>{{ failure.text }}</pre>
{% endfor %}{% endif %}
{% if nightly.not_checked %}<h2>Not checked on this machine</h2>
<ul>{% for line in nightly.not_checked %}<li>{{ line }}</li>{% endfor %}</ul>
{% endif %}
{% if past | length > 1 %}<h2>Runs so far</h2>
<table><tr><th>run<th>state{% for name in names %}<th>{{ name }}{% endfor %}</tr>
{% for run in past | reverse %}
<tr><td>{% if run.url %}<a href="{{ run.url }}">{{ run.time }}</a>{% else %}{{ run.time }}{% endif %}
<td class="{{ run.state }}">{{ run.state }}{% for name in names %}
<td class="n">{% if name in run.pairs %}{{ rate(run.pairs[name].rate, run.pairs[name].error) }}{% endif %}
{% endfor %}</tr>
{% endfor %}
</table>
{% endif %}
</html>
"""


def page(nightly: Nightly, past: Sequence[PastRun]) -> str:
    """Return the nightly as one HTML page that loads nothing else; names and texts from files are escaped."""
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(_PAGE)
    names = sorted({name for run in past for name in run.pairs})
    return template.render(nightly=nightly, past=past, names=names, rate=with_error)
