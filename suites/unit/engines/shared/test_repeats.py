"""How far an engine that decodes differs from itself."""

from __future__ import annotations

from harness.counts.rounds import Limits
from harness.counts.run import PromptRecord
from harness.engines.shared.repeats import in_order, repeat_noise, shuffled

LIMITS = Limits(8, 2, ())


def _record(name: str, *chains: tuple[int, int], rounds: tuple[int, ...] = (0, 0, 0, 0)) -> PromptRecord:
    return PromptRecord(name, "c", "h", 3, (1, 2, 3, 4, 5), rounds, (4, 0, 0), chains=chains or None)


def test_another_order_is_the_same_every_time_and_is_undone() -> None:
    items = [_record(str(index)) for index in range(20)]
    mixed = shuffled(items, 1)
    assert mixed == shuffled(items, 1) != items
    assert shuffled(items, 2) != mixed
    assert list(in_order(mixed, items)) == items


def test_windows_that_a_second_run_proposes_differently() -> None:
    first = [_record("a", (9, 9), (9, 9), (9, 9), (9, 9)), _record("b", (9, 9), (9, 9), (9, 9), (9, 9))]
    second = [first[0], _record("b", (9, 9), (9, 9), (9, 8), (9, 8))]
    noise = repeat_noise(first, second, LIMITS, "again")
    assert noise is not None
    assert (noise.by_prompt, noise.how) == (((0, 2), (1, 2)), "again")


def test_an_engine_without_chains_has_no_noise_of_proposals() -> None:
    assert repeat_noise([_record("a")], [_record("a")], LIMITS, "again") is None
