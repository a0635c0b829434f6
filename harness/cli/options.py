"""Options and arguments that several commands take."""

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
    str, typer.Argument(metavar="PAIR", help="Path of a .pair.toml, or name of a built-in pair such as tiny.")
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="reference (short for reference:replay: one target forward over the known continuation), "
        "reference:sequential (real verify rounds, one prompt at a time), reference:batched (verify rounds of many "
        "prompts together), sglang (the SGLang installed here), or server (a running server, see --endpoint). "
        "Default: the pair file's.",
    ),
]
EndpointOption = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="URL",
        help="Measure the running SGLang or vLLM server at this address, http://host:port, with the API key in "
        "HARNESS_API_KEY. Default: the pair file's.",
        show_default=False,
    ),
]
DtypeOption = Annotated[
    str | None, typer.Option("--dtype", help="float64, float32, bfloat16 or float16. Default: the pair file's.")
]
DeviceOption = Annotated[str | None, typer.Option("--device", help="cpu, cuda or cuda:N. Default: the pair file's.")]
PromptsOption = Annotated[
    str | None, typer.Option("--prompts", help="Only the first N prompts, or the prompts with these ids (a,b,c).")
]
StepsOption = Annotated[
    int | None, typer.Option("--k", min=1, max=64, help="Chain length k. Default: the pair file's decode.num_steps.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Print the traceback of an error too.")]
