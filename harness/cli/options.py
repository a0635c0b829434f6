"""The options and arguments that several commands take, each written once."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "DebugOption",
    "DeviceOption",
    "DtypeOption",
    "EndpointOption",
    "EngineOption",
    "JsonOption",
    "PairArgument",
    "PromptsOption",
    "StepsOption",
]

PairArgument = Annotated[
    str, typer.Argument(metavar="PAIR", help="Path of a .pair.toml, or the name of a built-in pair (tiny).")
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="reference (the same as reference:replay: one target forward over the known text), "
        "reference:sequential (real verify rounds, one prompt at a time), reference:batched (rounds of many prompts "
        "together); sglang (the installed SGLang itself); server (a running one, see --endpoint). "
        "Default: the pair file's.",
    ),
]
EndpointOption = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="URL",
        help="Measure the running SGLang or vLLM server at this address, http://host:port; its API key is taken from "
        "HARNESS_API_KEY. Default: the pair file's.",
        show_default=False,
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
