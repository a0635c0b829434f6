"""`harness schema`: the JSON schema of what a command prints with `--json`."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli import output
from harness.cli.options import DebugOption, JsonOption

__all__ = ["schema"]


def schema(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND...]",
            help="A command, such as check or golden show; error for what each of them prints if it fails; pytest for "
            "what --acceptance-json writes. Default: list them.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Print the JSON schema (draft 2020-12) of a command's --json, or list the schemas."""
    from harness.report.schemas import SchemasBody, names, shipped

    if command:
        output.print_json(shipped("-".join(command)))
    elif json:
        output.print_json(SchemasBody(tuple(names())))
    else:
        typer.echo("\n".join(name.replace("-", " ") for name in names()))
