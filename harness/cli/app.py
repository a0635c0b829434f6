"""The command line: one module per command, which turns options into a call and its result into a report or JSON.

Nothing heavy is imported at the top of these modules: `harness --help` must answer at once.
"""

from __future__ import annotations

import io
import sys
import traceback
from typing import Annotated, NoReturn

import typer

from harness import __version__
from harness.cli import output
from harness.cli.check import check
from harness.cli.compare import compare
from harness.cli.conformance import conformance
from harness.cli.faults import faults
from harness.cli.golden import golden
from harness.cli.layers import layers
from harness.cli.measure import measure
from harness.cli.nightly import nightly
from harness.cli.power import power
from harness.cli.record import record
from harness.cli.schema import schema
from harness.cli.trace import trace
from harness.cli.translate import translate
from harness.errors import HarnessError, one_line
from harness.report.bodies.base import ErrorDetails, error_details

__all__ = ["app", "main", "run"]

app = typer.Typer(
    name="harness",
    help="Tell whether an EAGLE-3 pair (target and draft) still accepts as many tokens as it should, and if it does "
    "not, which wire is crossed.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Exit status: 0 pass, 1 the pair is bad, 2 bad usage or input, 3 inconclusive or not measured, "
    "4 the engine failed.",
)

app.command()(measure)
app.command()(check)
app.command()(compare)
app.command()(record)
app.add_typer(golden)
app.add_typer(nightly)
app.command()(power)
app.command()(faults)
app.command()(trace)
app.command()(layers)
app.command()(translate)
app.command()(conformance)
app.command()(schema)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"acceptance-harness {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _show: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


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
        return output.fail(error_details(error, str(error), error.exit_code), as_json=as_json)
    except KeyboardInterrupt:
        return output.fail(ErrorDetails("Interrupted", "interrupted; nothing was written.", 130), as_json=as_json)
    except BrokenPipeError:
        # The reader of the output has closed it (`harness --help | head`): not an error, and nowhere to report one.
        output.leave_stdout()
        return 0
    except Exception as error:  # noqa: BLE001 - the last place before a traceback reaches the user
        usage = output.usage_message(error)
        if usage is not None:
            return output.fail(ErrorDetails("UsageError", one_line(usage), 2), as_json=as_json)
        if debug:
            traceback.print_exc()
        text = f"the engine failed: {type(error).__name__}: {error}. Next: run again with --debug to see where."
        return output.fail(error_details(error, text, 4), as_json=as_json)


def _invoke(arguments: list[str]) -> int:
    """Run a command and return its status; typer's own main would handle interrupts and closed pipes by itself."""
    command = typer.main.get_command(app)
    status = 0
    try:
        with command.make_context("harness", list(arguments)) as context:
            command.invoke(context)
    except typer.Exit as done:
        status = done.exit_code
    # Flushed here, so that a closed pipe raises its error now and not while the interpreter shuts down.
    sys.stdout.flush()
    return status


def run() -> NoReturn:
    """Run the command line and exit with its status: the entry point of the script `harness`."""
    for stream in (sys.stdout, sys.stderr):
        # A name may have characters that the terminal's encoding lacks; the verdict must be printed all the same.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(main())
