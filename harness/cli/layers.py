"""`harness layers`: which boundaries each engine and trainer would use for a draft."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli import output
from harness.cli.options import DebugOption, JsonOption

__all__ = ["layers"]


def layers(
    draft: Annotated[Path, typer.Argument(metavar="DRAFT", help="A draft's folder or its config.json.")],
    target: Annotated[Path | None, typer.Option("--target", help="The target's folder; its config is read.")] = None,
    num_layers: Annotated[
        int | None, typer.Option("--layers", min=1, help="The target's number of decoder blocks, where it is not here.")
    ] = None,
    arch: Annotated[str | None, typer.Option("--arch", help="The target's architecture, where it is not here.")] = None,
    trained_as: Annotated[
        str | None, typer.Option("--trained-as", help="Who wrote the ids. Default: the likeliest, which is said.")
    ] = None,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Say which boundaries every engine and trainer, by version, would use for this draft, and where they disagree.

    Reads configs only. Exit 0 also where they disagree: engines normally do.
    """
    from harness.commands.layers import layers as run
    from harness.report.ids_bodies import layers_body
    from harness.report.layers import layers_report

    report = run(draft, target=target, num_layers=num_layers, architecture=arch, trained_as=trained_as)
    if json:
        output.print_json(layers_body(report))
    else:
        output.print_report(layers_report(report))
