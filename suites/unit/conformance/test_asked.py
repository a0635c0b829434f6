"""The lists of layer ids that every class is asked for."""

from __future__ import annotations

from harness.conformance.asked import asked_lists


def test_asked_lists_are_what_their_names_say() -> None:
    lists = {entry.name: entry.ids for entry in asked_lists(8)}
    assert lists["none given"] is None
    assert lists["the default's boundaries, given"] == (2, 4, 5)
    assert lists["N - 1 last"] == (1, 3, 7)
    assert lists["N last"] == (2, 4, 8)
    for name in ("unsorted", "unsorted, first id 1"):
        ids = lists[name]
        assert ids is not None
        assert list(ids) != sorted(ids)
        assert len(set(ids)) == 3
    assert len(set(lists.values())) == len(lists)
