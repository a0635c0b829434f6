"""SGLang's counters: read, padded, and refused where they contradict each other."""

from __future__ import annotations

from typing import Any

import pytest

from harness.engines.shared.sglang_counters import Counters, read_counters
from harness.errors import EngineError

# As SGLang 0.5.23 answers: 11 rounds of a chain of 4, none of which accepts 4.
META: dict[str, Any] = {
    "completion_tokens": 22,
    "spec_accept_rate": 11 / 44,
    "spec_accept_length": 2.0,
    "spec_num_correct_drafts": 11,
    "spec_num_proposed_drafts": 44,
    "spec_verify_ct": 11,
    "spec_correct_drafts_histogram": [4, 4, 2, 1],
}


def _read(**changes: Any) -> Counters:
    return read_counters(META | changes, num_steps=4, num_draft_tokens=5)


def test_the_histogram_is_padded() -> None:
    assert _read() == Counters(11, 11, 44, (4, 4, 2, 1, 0))


def test_no_round_at_all() -> None:
    """SGLang leaves every counter out where one token was asked for."""
    assert read_counters({"completion_tokens": 1}, num_steps=4, num_draft_tokens=5) == Counters(0, 0, 0, (0,) * 5)


def test_a_tree_proposes_nodes() -> None:
    meta = META | {"spec_num_proposed_drafts": 77, "spec_accept_rate": 11 / 77}
    assert read_counters(meta, num_steps=4, num_draft_tokens=8).proposed == 77


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"spec_correct_drafts_histogram": [4, 4, 2, 2]}, "12, spec_verify_ct is 11"),
        ({"spec_num_correct_drafts": 12, "spec_accept_rate": 12 / 44}, "11, spec_num_correct_drafts is 12"),
        ({"spec_num_proposed_drafts": 55, "spec_accept_rate": 11 / 55}, "44, spec_num_proposed_drafts is 55"),
        ({"spec_accept_rate": 0.5}, "spec_accept_rate is 0.5"),
        ({"spec_verify_ct": 12}, "11, spec_verify_ct is 12"),
    ],
)
def test_a_violated_identity(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(EngineError, match="contradict each other") as caught:
        _read(**changes)
    assert told in str(caught.value)


def test_more_accepted_than_can_be_proposed() -> None:
    meta = META | {"spec_correct_drafts_histogram": [5, 5, 0, 0, 0, 1], "spec_num_correct_drafts": 10}
    with pytest.raises(EngineError, match="5 accepted tokens, but only 4"):
        read_counters(meta | {"spec_accept_rate": 10 / 44}, num_steps=4, num_draft_tokens=5)


@pytest.mark.parametrize("name", ["spec_num_correct_drafts", "spec_correct_drafts_histogram", "spec_accept_rate"])
def test_another_version_counts_in_another_way(name: str) -> None:
    with pytest.raises(EngineError, match=f"lacks {name}"):
        read_counters({key: value for key, value in META.items() if key != name}, num_steps=4, num_draft_tokens=5)
