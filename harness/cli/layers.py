"""`harness layers`: the aux hidden states that each engine and trainer would use for a draft."""

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
        int | None,
        typer.Option("--layers", min=1, help="The target's number of decoder blocks, N, instead of --target."),
    ] = None,
    arch: Annotated[str | None, typer.Option("--arch", help="The target's architecture, instead of --target.")] = None,
    trained_as: Annotated[
        str | None,
        typer.Option(
            "--trained-as", help="The convention of the ids' writer. Default: the likeliest for this kind of config."
        ),
    ] = None,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Show the aux hidden states that every engine and trainer, by version, would use for this draft's layer ids.

    Boundary k is the aux hidden state after block k: 0 is the embedding, N the residual stream before the final norm.
    A convention by which other boundaries than the trained ones are captured is marked, with the ids to write instead,
    and so is a release with a known fault. Only configs are read. Exit 0 even if conventions disagree: they often do.
    """
    from harness.commands.layers import layers as run
    from harness.report.bodies.layers import layers_body
    from harness.report.layers import layers_report

    report = run(draft, target=target, num_layers=num_layers, architecture=arch, trained_as=trained_as)
    if json:
        output.print_json(layers_body(report))
    else:
        output.print_report(layers_report(report))
