"""`harness translate`: layer ids from one convention into boundaries, and into another convention's ids."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli import output
from harness.cli.options import DebugOption, JsonOption
from harness.facts.numbering import convention_names

__all__ = ["translate"]


def translate(
    ids: Annotated[
        list[int],
        typer.Argument(metavar="IDS...", help="Layer ids; after -- if one is negative.", show_default=False),
    ],
    source: Annotated[
        str,
        typer.Option(
            "--from",
            help=f"The convention that the ids are written in: {', '.join(convention_names('[==VERSION]'))}.",
        ),
    ],
    layers: Annotated[int, typer.Option("--layers", min=1, help="The target's number of decoder blocks, N.")],
    to: Annotated[str, typer.Option("--to", help="The convention to write them in.")] = "boundary",
    arch: Annotated[
        str, typer.Option("--arch", help="The target's architecture: some engines number by model class.")
    ] = "LlamaForCausalLM",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Translate layer ids from one convention into another.

    Boundary k is the aux hidden state after block k: 0 is the embedding, N the residual stream before the final norm.
    Exit 2, with the reason, if a convention cannot say these boundaries or an engine captures none of them.
    """
    from harness.commands.translate import translate as run
    from harness.report.translate import translate_report

    result = run(ids, source, to=to, num_layers=layers, architecture=arch)
    if json:
        output.print_json(result.to_dict())
    else:
        output.print_report(translate_report(result))
