"""`harness conformance`: what each model class of SGLang captures for EAGLE-3, held against what the harness knows."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import output
from harness.cli.options import DebugOption, JsonOption

if TYPE_CHECKING:
    from harness.conformance.matrix import Forwards
    from harness.facts.reading.sources import SglangSources

__all__ = ["conformance"]


def conformance(
    sglang: Annotated[
        list[Path] | None,
        typer.Option(
            "--sglang",
            metavar="FOLDER_OR_WHEEL",
            help="A release's wheel or its unpacked folder; may be given several times. Default: the installed sglang.",
            show_default=False,
        ),
    ] = None,
    forward: Annotated[
        bool | None,
        typer.Option(
            "--forward/--no-forward",
            help="Run the real classes on the CPU, for the release that is installed (about 20 s a class). "
            "Default: if it is.",
            show_default=False,
        ),
    ] = None,
    end_to_end: Annotated[
        bool,
        typer.Option(
            "--end-to-end",
            help="Start a whole engine as well for each class that ran, with one list (about 30 s more a class).",
        ),
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="CLASS", help="Only this class; may be given several times.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Write the tables to this file as well.")
    ] = None,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Ask every SGLang class that captures hidden states for lists of layer ids, and compare with what is known here.

    Exit 1 if a class does not do what the harness says it does, which names the class and the ids: after an upgrade
    of SGLang, the rule that changed.
    """
    from harness.conformance.matrix import build_matrix
    from harness.errors import InputError
    from harness.facts.reading.sources import find_installed, read_sources
    from harness.files import require_writable, write_atomically
    from harness.report.bodies.conformance import conformance_body
    from harness.report.conformance import conformance_markdown, conformance_report

    installed = find_installed()
    paths = sglang or ([] if installed is None else [installed])
    if not paths or ((forward or end_to_end) and installed is None):
        raise InputError(
            "sglang is not installed",
            key="--end-to-end" if end_to_end else "--forward" if forward else "--sglang",
            expected="the package sglang, or without --forward a release's wheel or folder",
            next_step="pip download --no-deps sglang==VERSION, and give the wheel with --sglang",
        )
    if markdown is not None:
        require_writable(markdown.parent)
    releases = [read_sources(path) for path in paths]
    here = read_sources(installed) if installed is not None and _can_run(forward, end_to_end) else None
    matrices = [
        build_matrix(
            release,
            forwards=_forwards(release, here, end_to_end),
            only=tuple(only or ()),
            tell=output.note,
        )
        for release in releases
    ]
    if markdown is not None:
        text = conformance_markdown(matrices, _command(sglang or [], forward, end_to_end, only or [], markdown))
        write_atomically(markdown, text.encode())
    red = [entry for matrix in matrices for entry in matrix.red]
    if json:
        output.print_json(conformance_body(matrices))
    else:
        output.print_report(conformance_report(matrices))
    raise typer.Exit(int(bool(red)))


def _can_run(forward: bool | None, end_to_end: bool) -> bool:
    """Whether real classes are run; if that was not asked for explicitly, what is missing for it is said."""
    from harness.engines.sglang.installed import cpu_environment
    from harness.errors import InputError

    if forward is False and not end_to_end:
        return False
    try:
        cpu_environment()
    except InputError as error:
        if forward or end_to_end:
            raise
        output.note(f"no class is run: {error.problem}; {error.next_step}")
        return False
    return True


def _forwards(release: SglangSources, here: SglangSources | None, end_to_end: bool) -> Forwards | None:
    """Return what runs a release's classes: the installed package, if it has exactly these model files."""
    if here is None or here.texts != release.texts:
        return None
    from harness.conformance.forward import run_forwards

    return functools.partial(run_forwards, whole=end_to_end)


def _command(sglang: list[Path], forward: bool | None, end_to_end: bool, only: list[str], markdown: Path) -> str:
    """Return the command line that writes the document; a file by its name where it lies somewhere of this machine."""
    words = ["harness", "conformance"]
    words += [word for path in sglang for word in ("--sglang", path.name)]
    words += [] if forward is None else ["--forward" if forward else "--no-forward"]
    words += ["--end-to-end"] if end_to_end else []
    words += [word for name in only for word in ("--only", name)]
    return " ".join([*words, "--markdown", markdown.name if markdown.is_absolute() else markdown.as_posix()])
