"""The command line: options in, one path through `harness.check`, a report or one JSON object out.

Nothing heavy is imported here: `harness --help` must answer at once.
"""

from __future__ import annotations

import io
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from harness import __version__
from harness.cli import output
from harness.cli.conformance import conformance
from harness.cli.golden import golden
from harness.cli.layers import layers
from harness.cli.nightly import nightly
from harness.cli.power import power
from harness.cli.trace import trace
from harness.cli.translate import translate
from harness.errors import HarnessError

if TYPE_CHECKING:
    from harness.compare import Side
    from harness.engines.base import Progress

__all__ = ["app", "main", "run"]

app = typer.Typer(
    name="harness",
    help="Does an EAGLE-3 pair still accept as many tokens as it should, and if not, which wire is crossed?",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Exit status: 0 fine, 1 the pair is bad, 2 bad usage or input, 3 inconclusive or not measured, "
    "4 the engine failed.",
)

app.add_typer(golden)
app.add_typer(nightly)
app.command()(power)
app.command()(trace)
app.command()(layers)
app.command()(translate)
app.command()(conformance)

PairArgument = Annotated[
    str, typer.Argument(metavar="PAIR", help="Path of a .pair.toml, or the name of a built-in pair (tiny).")
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="reference (the same as reference:replay: one target forward over the known text), "
        "reference:sequential (real verify rounds, one prompt at a time), reference:batched (rounds of many prompts "
        "together); sglang (the installed SGLang itself). Default: the pair file's.",
    ),
]
DtypeOption = Annotated[
    str | None, typer.Option("--dtype", help="float64, float32, bfloat16 or float16. Default: the pair file's.")
]
DeviceOption = Annotated[str | None, typer.Option("--device", help="cpu, cuda, … Default: the pair file's.")]
PromptsOption = Annotated[str | None, typer.Option("--prompts", help="Only the first N prompts, or these ids (a,b,c).")]
StepsOption = Annotated[
    int | None, typer.Option("--k", min=1, max=64, help="Chain length. Default: the pair file's decode.num_steps.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"acceptance-harness {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _show: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def measure(
    pair: PairArgument,
    engine: EngineOption = None,
    k: StepsOption = None,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    prompts: PromptsOption = None,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Measure acceptance rates; no golden, no verdict."""
    from harness import check as checks
    from harness.report.text import measurement_report

    ready = checks.prepare(pair, engine=engine, dtype=dtype, device=device, num_steps=k)
    with output.progress(quiet=json) as progress:
        result = checks.measure(ready, prompts=prompts, progress=progress)
    if json:
        output.print_json(result.to_dict())
    else:
        output.print_report(measurement_report(result, checks.looping(result.run.records)), result.seconds)


@app.command()
def check(
    pair: PairArgument,
    engine: EngineOption = None,
    k: StepsOption = None,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    prompts: PromptsOption = None,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Measure and gate against the golden baseline: exit 0 where it passes, 1 where it does not."""
    from harness import check as checks
    from harness.report.text import check_report

    ready = checks.prepare(pair, engine=engine, dtype=dtype, device=device, num_steps=k)
    with output.progress(quiet=json) as progress:
        result = checks.check(ready, prompts=prompts, progress=progress)
    if json:
        output.print_json(result.to_dict())
    else:
        output.print_report(check_report(result), result.measurement.seconds)
    raise typer.Exit(result.exit_code)


@app.command()
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A pair (file or name), or a JSON result of measure or check.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another; may be the same pair with another engine.")],
    engine_a: Annotated[str | None, typer.Option("--engine-a", help="Engine for A.")] = None,
    engine_b: Annotated[str | None, typer.Option("--engine-b", help="Engine for B.")] = None,
    dtype_a: Annotated[str | None, typer.Option("--dtype-a", help="dtype for A.")] = None,
    dtype_b: Annotated[str | None, typer.Option("--dtype-b", help="dtype for B.")] = None,
    prompts: PromptsOption = None,
    margin: Annotated[float, typer.Option(min=0.0001, max=1.0, help="A drop of the rate that does not matter.")] = 0.01,
    alpha: Annotated[float, typer.Option(min=1e-9, max=0.5, help="Chance of a wrong outcome.")] = 0.001,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Compare two pairs, engines or results, paired by prompt: exit 1 where B accepts fewer tokens than A."""
    from harness import compare as comparing
    from harness.report.comparison import comparison_report

    with output.progress(quiet=json) as progress:
        first = _side(a, engine_a, dtype_a, prompts, progress)
        second = _side(b, engine_b, dtype_b, prompts, progress)
    result = comparing.compare(first, second, margin=margin, alpha=alpha)
    if json:
        output.print_json(result.to_dict())
    else:
        output.print_report(comparison_report(result))
    raise typer.Exit(result.exit_code)


def _side(name: str, engine: str | None, dtype: str | None, prompts: str | None, progress: Progress) -> Side:
    from harness import check as checks
    from harness import compare as comparing

    if name.endswith(".json"):
        return comparing.read_result(Path(name))
    pair = checks.prepare(name, engine=engine, dtype=dtype)
    return comparing.side_of(checks.measure(pair, prompts=prompts, progress=progress))


@app.command()
def record(
    pair: PairArgument,
    reason: Annotated[str | None, typer.Option("--reason", help="Why; needed where a golden is replaced.")] = None,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Measure and write the golden baseline, with its noise floor. Refuses a golden that would lie."""
    from harness import check as checks
    from harness import recording
    from harness.report.text import measurement_report

    ready = checks.prepare(pair, dtype=dtype, device=device)
    with output.progress(quiet=json) as progress:
        result = recording.record(ready, reason=reason, progress=progress)
    if json:
        output.print_json(result.to_dict())
    else:
        output.print_report(measurement_report(result.measurement, []), result.measurement.seconds)
        output.note(f"{'replaced' if result.replaced else 'recorded'} {result.file}")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in arguments
    debug = "--debug" in arguments
    try:
        return _invoke(arguments)
    except HarnessError as error:
        if debug:
            traceback.print_exc()
        return output.fail(str(error), error.to_dict(), error.exit_code, as_json=as_json)
    except KeyboardInterrupt:
        return output.fail("interrupted; nothing was written.", {"type": "Interrupted"}, 130, as_json=as_json)
    except BrokenPipeError:
        # The reader of a help text went away: no error of ours, and nowhere to tell it.
        output.leave_stdout()
        return 0
    except Exception as error:  # noqa: BLE001 - the last resort before a traceback reaches the user
        usage = output.usage_message(error)
        if usage is not None:
            return output.fail(usage, {"type": "UsageError"}, 2, as_json=as_json)
        if debug:
            traceback.print_exc()
        text = f"the engine failed: {type(error).__name__}: {error}. Next: run again with --debug and report it."
        return output.fail(text, {"type": type(error).__name__}, 4, as_json=as_json)


def _invoke(arguments: list[str]) -> int:
    """Run a command and return its status; not by the app's own main, which keeps interrupts and closed pipes."""
    command = typer.main.get_command(app)
    status = 0
    try:
        with command.make_context("harness", list(arguments)) as context:
            command.invoke(context)
    except typer.Exit as done:
        status = done.exit_code
    # Now, where a reader that went away is met, and not when the interpreter ends.
    sys.stdout.flush()
    return status


def run() -> NoReturn:
    """Entry point that ends the process with the status."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that lacks a letter of some name gets it escaped, and gets the verdict.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(main())
