"""`harness golden`: look at baselines, compare two, verify one, find those that nothing uses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import output
from harness.cli.options import DebugOption, JsonOption
from harness.errors import InputError

if TYPE_CHECKING:
    from harness.golden.store import Golden

__all__ = ["golden"]

golden = typer.Typer(
    name="golden",
    help="Look at golden baselines, compare two, verify one, find those that nothing uses.",
    rich_markup_mode=None,
)

GoldenArgument = Annotated[str, typer.Argument(metavar="GOLDEN", help="A golden's JSON, a pair file or a pair's name.")]
ClassOption = Annotated[
    str | None,
    typer.Option(
        "--class",
        metavar="CLASS",
        help="Which of a pair's goldens to read: engine-device-dtype, such as reference-cuda-bfloat16. Default: the "
        "golden that `harness check` compares with, which is that of the pair's own class if it exists.",
        show_default=False,
    ),
]


@golden.command()
def show(
    which: GoldenArgument,
    golden_class: ClassOption = None,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Print what a golden holds: rates, floor, noise, where it comes from, earlier records."""
    from harness.report.golden import golden_report
    from harness.report.golden_bodies import show_body

    found = _load(which, golden_class)
    if json:
        output.print_json(show_body(found))
    else:
        output.print_report(golden_report(found))


@golden.command()
def diff(
    before: GoldenArgument,
    after: GoldenArgument,
    golden_class: ClassOption = None,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Print what differs between two goldens, prompt by prompt; exit 1 where anything measured does."""
    from harness.golden.difference import difference
    from harness.report.golden import difference_report
    from harness.report.golden_bodies import diff_body

    result = difference(_load(before, golden_class), _load(after, golden_class))
    if json:
        output.print_json(diff_body(result))
    else:
        output.print_report(difference_report(result))
    raise typer.Exit(0 if result.same else 1)


@golden.command()
def verify(
    pair: Annotated[str, typer.Argument(metavar="PAIR", help="A pair file or a pair's name.")],
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Check a pair's goldens against themselves and the pair's files; no model runs. Exit 1 if one fails."""
    from harness.golden.find import golden_folder
    from harness.golden.verify import golden_problems
    from harness.pair.pair import load_pair
    from harness.report.golden import verification_report
    from harness.report.golden_bodies import verify_body

    ready = load_pair(pair)
    folder = golden_folder(ready)
    files = sorted(folder.glob("*.json")) if folder is not None else []
    if not files:
        raise InputError(
            "the pair has no golden", file=folder or ready.file, expected="a golden", next_step=f"harness record {pair}"
        )
    problems: dict[str, list[str]] = {str(file): golden_problems(file, ready) for file in files}
    if json:
        output.print_json(verify_body(ready.name, problems))
    else:
        output.print_report(verification_report(problems))
    raise typer.Exit(1 if any(problems.values()) else 0)


@golden.command()
def orphans(
    folder: Annotated[
        str | None,
        typer.Argument(
            metavar="[FOLDER]",
            help="A golden/ folder, or the project it lies in. Default: the nearest golden/ upward from here.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """List goldens that no pair file of the project uses, and what cannot be read; removes nothing. Exit 1 if any."""
    from harness.golden.orphans import find_home, find_orphans
    from harness.report.golden import orphans_report
    from harness.report.golden_bodies import orphans_body

    result = find_orphans(find_home(folder))
    if json:
        output.print_json(orphans_body(result))
    else:
        output.print_report(orphans_report(result))
    raise typer.Exit(1 if result.orphans else 0)


def _load(which: str, golden_class: str | None) -> Golden:
    from harness.golden.find import find_golden, golden_in_use
    from harness.golden.golden_class import GoldenClass
    from harness.golden.store import load_golden
    from harness.pair.pair import load_pair

    asked = None if golden_class is None else GoldenClass.parse(golden_class, key="--class")
    if which.endswith(".json"):
        return load_golden(Path(which))
    pair = load_pair(which)
    return load_golden(golden_in_use(pair) if asked is None else find_golden(pair, asked))
