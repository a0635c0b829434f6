"""The import graph of harness/, drawn by room.

A room is a folder of harness/ or a module at its root; an arrow is a room that imports from another one, however often.
`python -m suites.repository.structure` prints the rooms by floor (a room is one floor above the highest that it
imports), the arrows, and the counts; `--thin` prints only the arrows that rest on one file, the easiest to remove.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "harness"

Arrow = tuple[str, str]


def room_of(module: str) -> str:
    """Return the room of a module, by its name below the package; the package's own file is a room too."""
    return module.split(".")[1] if "." in module else module


@dataclass(frozen=True)
class Structure:
    """The rooms and what they import from each other.

    Attributes:
        rooms: The rooms.
        arrows: By importing and imported room, the modules on both sides.
    """

    rooms: frozenset[str]
    arrows: Mapping[Arrow, frozenset[tuple[str, str]]]

    def imported_by(self, room: str) -> frozenset[str]:
        """Return the rooms that a room imports."""
        return frozenset(target for source, target in self.arrows if source == room)

    @cached_property
    def circle(self) -> list[str]:
        """Rooms that import each other in a circle, in order; empty if there is no such circle."""
        done: set[str] = set()

        def walk(room: str, path: list[str]) -> list[str]:
            if room in path:
                return path[path.index(room) :]
            if room not in done:
                for target in sorted(self.imported_by(room)):
                    if found := walk(target, [*path, room]):
                        return found
                done.add(room)
            return []

        return next((found for room in sorted(self.rooms) if (found := walk(room, []))), [])

    @cached_property
    def floors(self) -> list[list[str]]:
        """The rooms by floor, the ground floor first.

        Raises:
            ValueError: The rooms import each other in a circle.
        """
        if self.circle:
            raise ValueError(f"a circle has no floors: {' -> '.join(self.circle)}")
        height: dict[str, int] = {}

        def measure(room: str) -> int:
            if room not in height:
                height[room] = 1 + max((measure(target) for target in self.imported_by(room)), default=-1)
            return height[room]

        highest = max(measure(room) for room in self.rooms)
        return [sorted(room for room in self.rooms if height[room] == floor) for floor in range(highest + 1)]

    def against(self, layers: Sequence[frozenset[str]]) -> list[Arrow]:
        """Return the arrows that point up a list of layers, the highest layer first, and those of rooms outside it."""
        rank = {room: number for number, layer in enumerate(layers) for room in layer}
        return [
            (source, target)
            for source, target in sorted(self.arrows)
            if source not in rank or target not in rank or rank[target] < rank[source]
        ]


def read_structure(package: str = PACKAGE) -> Structure:
    """Read every import of a package that can be imported; nothing of it is run."""
    graph = grimp.build_graph(package, cache_dir=None)
    arrows: dict[Arrow, set[tuple[str, str]]] = {}
    for source in graph.modules:
        for target in graph.find_modules_directly_imported_by(source):
            if room_of(source) != room_of(target):
                arrows.setdefault((room_of(source), room_of(target)), set()).add((source, target))
    found = {arrow: frozenset(pairs) for arrow, pairs in arrows.items()}
    return Structure(frozenset(map(room_of, graph.modules)), found)


def read_layers() -> list[frozenset[str]]:
    """Return the rooms of each layer in import-linter's contract over the whole package, the highest first."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (layers,) = [one["layers"] for one in contracts if one["type"] == "layers" and "containers" not in one]
    found = [frozenset(room_of(name) for name in re.split(r"\s*[:|]\s*", layer)) for layer in layers]
    # The package's own file holds the version and imports nothing.
    return [*found, frozenset({PACKAGE})]


def public_names(source: str) -> tuple[list[str], list[str]]:
    """Return the public classes and the public constants that a module defines at its top level."""
    classes: list[str] = []
    constants: list[str] = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            classes.append(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            constants += [target.id for target in targets if isinstance(target, ast.Name)]
    public = re.compile(r"[A-Z][A-Z0-9_]*")
    return [name for name in classes if not name.startswith("_")], [
        name for name in constants if public.fullmatch(name)
    ]


def thin(structure: Structure) -> Iterator[str]:
    """Yield the arrows that rest on one importing file."""
    for (source, target), pairs in sorted(structure.arrows.items()):
        if len({module for module, _ in pairs}) == 1:
            modules = ", ".join(sorted(module for _, module in pairs))
            yield f"{source} -> {target}: {next(iter(pairs))[0]} imports {modules}"


def drawing(structure: Structure) -> Iterator[str]:
    """Yield the rooms by floor from the top down, each with what it imports, and the counts."""
    for number, rooms in reversed(list(enumerate(structure.floors))):
        for room in rooms:
            yield f"{number:2}  {room:12} -> {', '.join(sorted(structure.imported_by(room))) or '-'}"
    upward = structure.against(read_layers())
    yield (
        f"{len(structure.rooms)} rooms, {len(structure.floors)} floors, {len(structure.arrows)} arrows, "
        f"{len(upward)} of them upward"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the graph and return 1 if it has a circle."""
    parser = argparse.ArgumentParser(
        prog="python -m suites.repository.structure", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--thin", action="store_true", help="print only the arrows that rest on one file")
    options = parser.parse_args(arguments)
    structure = read_structure()
    if structure.circle:
        sys.stdout.write(f"circle: {' -> '.join(structure.circle)}\n")
        return 1
    sys.stdout.write("\n".join((thin if options.thin else drawing)(structure)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
