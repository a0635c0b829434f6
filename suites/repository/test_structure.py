"""How the modules of harness/ and of its tests hang together."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from suites.repository.structure import ROOT, Structure, main, public_names, read_layers, read_structure, room_of

UNIT = ROOT / "suites" / "unit"
structure = cache(read_structure)


def _sources() -> list[Path]:
    return sorted((ROOT / "harness").rglob("*.py"))


def test_at_most_22_rooms_on_11_floors_with_100_arrows() -> None:
    found = structure()
    assert len(found.rooms) <= 22
    assert len(found.floors) <= 11
    assert len(found.arrows) <= 100


def test_no_room_imports_itself_by_way_of_others() -> None:
    assert structure().circle == []


def test_no_arrow_points_up_the_layers() -> None:
    assert structure().against(read_layers()) == []


def test_a_circle_and_an_upward_arrow_are_found() -> None:
    nowhere = frozenset({("a", "b")})
    chain = Structure(frozenset("abc"), {("a", "b"): nowhere, ("b", "c"): nowhere})
    assert chain.floors == [["c"], ["b"], ["a"]]
    assert chain.against([frozenset("a"), frozenset("bc")]) == []
    assert chain.against([frozenset("b"), frozenset("a"), frozenset("c")]) == [("a", "b")]
    assert chain.against([frozenset("a"), frozenset("b")]) == [("b", "c")]
    ring = Structure(frozenset("abc"), {("a", "b"): nowhere, ("b", "c"): nowhere, ("c", "b"): nowhere})
    assert ring.circle == ["b", "c"]
    with pytest.raises(ValueError, match="b -> c"):
        assert ring.floors


def test_a_room_is_a_folder_or_a_module_at_the_root() -> None:
    assert [room_of(name) for name in ("harness", "harness.errors", "harness.engines.sglang.watch")] == [
        "harness",
        "errors",
        "engines",
    ]


def test_the_graph_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[1] == "__main__"
    assert lines[-1].endswith("0 of them upward")
    assert main(["--thin"]) == 0
    assert "__main__ -> cli: harness.__main__ imports harness.cli.app" in capsys.readouterr().out


@pytest.mark.parametrize("of", [lambda names: names[0], lambda names: names[1]], ids=["classes", "constants"])
def test_no_two_public_names_are_the_same(of: Callable[[tuple[list[str], list[str]]], list[str]]) -> None:
    owners = defaultdict(list)
    for file in _sources():
        for name in of(public_names(file.read_text(encoding="utf-8"))):
            owners[name].append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in owners.items() if len(files) > 1} == {}


def test_which_names_count() -> None:
    source = (
        "class A: ...\nclass _B: ...\nONE = 1\nTWO: int = 2\n_THREE = 3\nfour = 4\nType = A\ndef f():\n    FIVE = 5\n"
    )
    assert public_names(source) == (["A"], ["ONE", "TWO"])


def _imported(file: Path) -> set[str]:
    """Return the modules that a file imports, and what it imports from them, by their last names."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.rpartition(".")[2] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {(node.module or "").rpartition(".")[2], *(alias.name for alias in node.names)}
    return names


def test_no_module_imports_a_test_module() -> None:
    files = [*(ROOT / "suites").rglob("*.py"), *(ROOT / "fixtures").rglob("*.py"), *_sources()]
    tests = {file.stem for file in files if file.name.startswith("test_")}
    assert {str(file.relative_to(ROOT)): tests & _imported(file) for file in files if tests & _imported(file)} == {}


def _homeless() -> set[str]:
    """Return the unit tests whose path names no module of harness/."""
    paths = {file.relative_to(UNIT) for file in UNIT.rglob("test_*.py")}
    modules = {path: ROOT / "harness" / path.with_name(path.name.removeprefix("test_")) for path in paths}
    return {str(path) for path, module in modules.items() if not module.is_file()}


def test_a_unit_test_lies_where_its_module_does() -> None:
    assert _homeless() == set()


def test_a_folder_of_unit_tests_is_a_package_of_the_source() -> None:
    folders = {file.parent.relative_to(UNIT) for file in UNIT.rglob("test_*.py")}
    assert {str(folder) for folder in folders if not (ROOT / "harness" / folder / "__init__.py").is_file()} == set()
