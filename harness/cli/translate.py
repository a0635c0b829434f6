"""`harness translate`: layer ids from one convention into boundaries, and into another convention's ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import output
from harness.cli.options import DebugOption, JsonOption
from harness.errors import InputError

if TYPE_CHECKING:
    from harness.facts.conventions import Reading

__all__ = ["translate"]

_CONVENTIONS = (
    "boundary, eagle, vllm, specforge, modelopt, transformers, speculators[==VERSION], sglang[==VERSION], "
    "sglang-sentinel"
)


def translate(
    ids: Annotated[
        list[int],
        typer.Argument(metavar="IDS...", help="Layer ids; after -- where one is negative.", show_default=False),
    ],
    source: Annotated[str, typer.Option("--from", help=f"The convention that the ids are written in: {_CONVENTIONS}.")],
    layers: Annotated[int, typer.Option("--layers", min=1, help="The target's number of decoder blocks, N.")],
    to: Annotated[str, typer.Option("--to", help="The convention to write them in.")] = "boundary",
    arch: Annotated[
        str, typer.Option("--arch", help="The target's architecture: some engines number by model class.")
    ] = "LlamaForCausalLM",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Translate layer ids; refuses, with the reason, what a convention cannot say.

    A boundary is a hidden state of the target: 0 the embedding, k the residual stream after k blocks, N the one before
    the final norm.
    """
    from rich.console import Group
    from rich.text import Text

    from harness.facts.conventions import newest, read_ids, write_ids
    from harness.report.ids_bodies import translate_body

    common: dict[str, Any] = {"num_layers": layers, "architecture": arch}
    reading = read_ids(ids, source, **common)
    written = write_ids(_whole(reading, ids), to, **common)
    assumed = {name: newest(name) for name in (source, to) if newest(name) != name}
    if json:
        output.print_json(translate_body(reading, written, architecture=arch, layers=layers, assumed=assumed))
        return
    lines = [f"ids {list(reading.ids)} as {reading.convention}: {reading.rule} ({reading.source})"]
    lines.append(f"boundaries {list(reading.boundaries)} of {layers} blocks, {arch}")
    if to != "boundary":
        lines.append(f"ids {list(written.ids)} as {written.convention}: {written.rule} ({written.source})")
    lines += [f"note: {name} alone means the newest known, {full}" for name, full in assumed.items()]
    output.print_report(Group(*(Text(line) for line in lines)))


def _whole(reading: Reading, ids: list[int]) -> tuple[int, ...]:
    """Return the boundaries, unless the convention itself loses some of the ids."""
    if reading.lost:
        raise InputError(
            f"{reading.convention} does not serve these ids as they stand: {'; '.join(reading.lost)}",
            key="IDS",
            found=ids,
            expected="ids in ascending order, each once, of boundaries that its loop reaches",
            next_step=f"it would serve boundaries {list(reading.boundaries)}",
        )
    return reading.boundaries
