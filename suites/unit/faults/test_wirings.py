"""Which faults a pair is tried with, and which entries of the catalogue they are."""

from __future__ import annotations

from harness.faults.catalogue import CATALOGUE
from harness.faults.wirings import boundary_faults, target_faults, wrong_wires

OTHER = (0, 2, 4)


def _boundaries(right: tuple[int, ...], layers: int, other: tuple[int, ...] | None) -> dict[str, tuple[int, ...]]:
    return {fault.name: fault.boundaries for fault in boundary_faults(right, layers, other)}


def _catalogue(right: tuple[int, ...], layers: int = 8) -> dict[str, tuple[str, ...]]:
    return {fault.name: fault.catalogue for fault in wrong_wires(right, layers, OTHER)}


def test_the_faults_of_a_wiring() -> None:
    faults = _boundaries((2, 4, 7), 8, OTHER)
    assert faults["all +1"] == (3, 5, 8)
    assert faults["slot 0 -1"] == (1, 4, 7)
    assert faults["permutation 021"] == (2, 7, 4)
    assert len([name for name in faults if name.startswith("permutation")]) == 5
    assert "all -1" not in _boundaries((0, 2, 4), 8, (2, 4, 7))


def test_an_incident_is_only_tried_with_boundaries_that_are_given() -> None:
    with_it, without = _boundaries((2, 4, 7), 8, OTHER), _boundaries((2, 4, 7), 8, None)
    assert with_it["the incident"] == OTHER
    assert without == {name: wrong for name, wrong in with_it.items() if name != "the incident"}


def test_every_fault_has_a_name_of_its_own_and_says_what_it_is() -> None:
    faults = [*wrong_wires((2, 4, 7), 8, OTHER), *target_faults()]
    assert len({fault.name for fault in faults}) == len(faults)
    assert {fault.kind for fault in faults} == {"boundaries", "states", "capture", "draft", "target"}
    assert all(fault.what for fault in faults)


def test_the_catalogue_holds_what_is_planted_and_nothing_else() -> None:
    # Of the right wirings, one that is not ascending and one that reads the last boundary.
    wires = [fault for right in ((2, 4, 7), (4, 2, 8)) for fault in wrong_wires(right, 8, OTHER)]
    assert {entry for fault in (*wires, *target_faults()) for entry in fault.catalogue} == set(CATALOGUE)
    assert all(name == entry.id and entry.mechanism for name, entry in CATALOGUE.items())


def test_a_catalogue_entry_is_named_only_where_the_mechanism_is_that_one() -> None:
    ascending = _catalogue((2, 4, 7))
    # A capture loop that loses the ids' order leaves ascending ids as they are.
    assert not any(entries for name, entries in ascending.items() if name.startswith("permutation"))
    assert [name for name, entries in _catalogue((4, 2, 7)).items() if "B9" in entries] == ["permutation 102"]
    # Only the last boundary was ever captured after the final norm.
    assert ascending["post-norm last"] == ()
    assert _catalogue((2, 4, 8))["post-norm last"] == ("A16", "B3")
    assert ascending["the incident"] == ("A0",)
    assert ascending["slot 1 +1"] == ()
