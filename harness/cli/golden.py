"""`harness golden`: shows golden baselines, compares two, verifies a pair's, lists unused ones."""

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
    help="Show golden baselines, compare two, verify a pair's, list unused ones.",
    rich_markup_mode=None,
)

_GOLDEN = "A golden's .json file, a pair file, or the name of a built-in pair."
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
    which: Annotated[str, typer.Argument(metavar="GOLDEN", help=_GOLDEN)],
    golden_class: ClassOption = None,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Print a golden: its rates, floor, noise, origin and earlier records."""
    from harness.report.bodies.golden import show_body
    from harness.report.golden import golden_report

    found = _load(which, golden_class)
    if json:
        output.print_json(show_body(found))
    else:
        output.print_report(golden_report(found))


@golden.command()
def diff(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help=_GOLDEN)],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="The golden to compare it with.")],
    golden_class: ClassOption = None,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Print the difference between two goldens, prompt by prompt; exit 1 if their measurements or settings differ."""
    from harness.golden.difference import difference
    from harness.report.bodies.golden import diff_body
    from harness.report.golden import difference_report

    result = difference(_load(before, golden_class), _load(after, golden_class))
    if json:
        output.print_json(diff_body(result))
    else:
        output.print_report(difference_report(result))
    raise typer.Exit(0 if result.same else 1)


@golden.command()
def verify(
    pair: Annotated[str, typer.Argument(metavar="PAIR", help="A pair file, or the name of a built-in pair.")],
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """Check that a pair's goldens are consistent and fit its files, without running a model. Exit 1 if one does not."""
    from harness.golden.find import golden_folder
    from harness.golden.store import golden_files
    from harness.golden.verify import golden_problems
    from harness.pair.pair import load_pair
    from harness.report.bodies.golden import verify_body
    from harness.report.golden import verification_report

    ready = load_pair(pair)
    folder = golden_folder(ready)
    files = golden_files(folder) if folder is not None else []
    if not files:
        raise InputError(
            "the pair has no golden",
            file=folder or ready.file,
            expected="at least one golden",
            next_step=f"harness record {pair}",
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
            help="A golden/ folder, or a project that has one. Default: the nearest golden/ upward from here.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by main
) -> None:
    """List goldens that no pair file of the project uses or that cannot be read; removes nothing. Exit 1 if any."""
    from harness.golden.orphans import find_home, find_orphans
    from harness.report.bodies.golden import orphans_body
    from harness.report.golden import orphans_report

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
