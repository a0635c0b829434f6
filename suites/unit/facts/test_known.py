"""Known faults of released engines are in every reading: which states come out, and of which releases."""

from __future__ import annotations

import pytest

from harness.errors import InputError
from harness.facts.known import KNOWN, NO_RESIDUAL, NOTHING
from harness.facts.layer_ids import Reading, read_ids, states_text, write_ids

GEMMA, GEMMA_MM = "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"
QWEN, INTERN, MINIMAX = (
    "Qwen3_5ForConditionalGeneration",
    "InternS2PreviewForConditionalGeneration",
    "MiniMaxM3SparseForCausalLM",
)


def _read(version: str, architecture: str, ids: list[int] | None = None) -> Reading:
    return read_ids(ids, f"sglang=={version}", num_layers=26, architecture=architecture)


@pytest.mark.parametrize(
    ("architecture", "before", "first", "last", "after"),
    [
        (GEMMA, "0.5.16", "0.5.17", "0.5.23", None),
        (GEMMA_MM, "0.5.16", "0.5.17", "0.5.23", None),
        (QWEN, "0.5.10", "0.5.11", "0.5.21", "0.5.22"),
        (INTERN, "0.5.11", "0.5.12", "0.5.21", "0.5.22"),
        (MINIMAX, None, "0.5.16", "0.5.17", "0.5.18"),
    ],
)
def test_the_releases_that_show_a_fault(
    architecture: str, before: str | None, first: str, last: str, after: str | None
) -> None:
    for version in (first, last):
        reading = _read(version, architecture)
        assert reading.fault is not None
        assert reading.boundaries == (2, 13, 23)
        assert reading.captured == ((None, None, None) if architecture in (GEMMA, GEMMA_MM) else ())
        assert reading.missing == (2, 13, 23)
        assert not reading.lost
        assert (reading.fault.first, reading.fault.last) == (first, last)
    for version in filter(None, (before, after)):
        reading = _read(version, architecture)
        assert reading.fault is None
        assert reading.captured == reading.boundaries
        assert not reading.missing


def test_the_embedding_has_no_residual_to_lose() -> None:
    reading = _read("0.5.23", GEMMA, [-1, 12, 22])
    assert (reading.boundaries, reading.captured) == ((0, 13, 23), (0, None, None))
    assert reading.missing == (13, 23)
    assert "sglang#39286" in reading.remarks[0]
    alone = _read("0.5.23", GEMMA, [-1])
    assert (alone.captured, alone.fault) == ((0,), None)


def test_what_the_rule_loses_and_what_the_fault_loses_are_said_apart() -> None:
    reading = _read("0.5.23", GEMMA, [22, -1, 22])
    assert (reading.meant, reading.boundaries, reading.captured) == ((23, 0, 23), (0, 23), (0, None))
    assert len(reading.lost) == 1
    assert reading.remarks == (*reading.lost, str(reading.fault))


def test_a_boundary_that_a_loop_never_reaches_is_missing_without_a_fault() -> None:
    reading = read_ids([1, 31], "sglang==0.5.23", num_layers=32, architecture="LlamaForCausalLM")
    assert (reading.meant, reading.captured, reading.missing, reading.fault) == ((2, 32), (2,), (32,), None)


def test_ids_are_written_for_a_release_with_a_fault_and_the_reading_says_so() -> None:
    written = write_ids((2, 13, 23), "sglang==0.5.23", num_layers=26, architecture=GEMMA)
    assert (written.ids, written.captured) == ((1, 12, 22), (None, None, None))
    assert written.fault is not None


def test_ids_that_the_rule_refuses_are_refused_before_any_fault() -> None:
    with pytest.raises(InputError, match="does not stand for a hidden state"):
        _read("0.5.23", GEMMA, [40])


def test_every_row_says_how_it_is_known() -> None:
    for fault in KNOWN:
        assert fault.evidence
        assert fault.effect in (NO_RESIDUAL, NOTHING)
        assert fault.reference in str(fault)
    assert [fault.thread for fault in KNOWN if GEMMA in fault.classes] == ["sglang#39286"]


def test_states_in_words() -> None:
    assert states_text((0, None, 23)) == "[0, none, 23]"
    assert states_text(()) == "nothing"
