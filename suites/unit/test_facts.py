"""Layer-id conventions: the same integers under each, and where one cannot say a boundary."""

from __future__ import annotations

import pytest

from harness.errors import InputError
from harness.facts.conventions import CONVENTIONS, read_ids


def _boundaries(ids: list[int] | None, convention: str, layers: int = 32) -> tuple[int, ...]:
    return read_ids(ids, convention, num_layers=layers, architecture="LlamaForCausalLM").boundaries


@pytest.mark.parametrize(
    ("convention", "expected"),
    [
        ("boundary", (1, 15, 28)),
        ("eagle", (1, 15, 28)),
        ("vllm", (1, 15, 28)),
        ("specforge", (2, 16, 29)),
        ("modelopt", (2, 16, 29)),
        ("sglang", (2, 16, 29)),
        ("sglang==0.5.23", (2, 16, 29)),
    ],
)
def test_the_same_ids_under_each_convention(convention: str, expected: tuple[int, ...]) -> None:
    assert _boundaries([1, 15, 28], convention) == expected


@pytest.mark.parametrize("convention", ["eagle", "vllm", "specforge", "modelopt", "sglang"])
@pytest.mark.parametrize("layers", [8, 32, 61])
def test_all_defaults_are_the_same_boundaries(convention: str, layers: int) -> None:
    reading = read_ids(None, convention, num_layers=layers, architecture="LlamaForCausalLM")
    assert reading.boundaries == (2, layers // 2, layers - 3)
    assert reading.defaulted


def test_sglangs_default_written_out_means_other_boundaries() -> None:
    """SGLang does not shift its own default, and shifts the same list when it stands in the config."""
    default = read_ids(None, "sglang", num_layers=32, architecture="LlamaForCausalLM")
    assert _boundaries(list(default.ids), "sglang") == tuple(boundary + 1 for boundary in default.boundaries)


def test_order_and_repeats_are_kept_by_trainers_and_lost_by_sglang() -> None:
    assert _boundaries([6, 1, 1], "specforge") == (7, 2, 2)
    assert _boundaries([6, 1, 1], "sglang") == (2, 7)


def test_the_embedding_and_the_last_boundary() -> None:
    assert _boundaries([-1, 1, 7], "specforge", 8) == (0, 2, 8)
    assert _boundaries([-1, 1, 7], "sglang", 8) == (0, 2)


@pytest.mark.parametrize(
    ("ids", "convention"), [([-2, 1, 3], "specforge"), ([1, 3, 8], "specforge"), ([-1, 2, 3], "eagle"), ([9], "vllm")]
)
def test_an_id_outside_the_target_is_refused_with_its_range(ids: list[int], convention: str) -> None:
    with pytest.raises(InputError, match="stands for no hidden state") as error:
        _boundaries(ids, convention, 8)
    assert "found boundary" in str(error.value)
    assert "expected a boundary from 0" in str(error.value)


def test_what_is_not_known_is_not_guessed() -> None:
    with pytest.raises(InputError, match="unknown layer-id convention"):
        _boundaries([1], "nobody")
    with pytest.raises(InputError, match="no rule is known"):
        read_ids([1], "sglang==0.5.12", num_layers=61, architecture="DeepseekV3ForCausalLM")
    with pytest.raises(InputError, match="not kept by version"):
        _boundaries([1], "specforge==0.2.0")
    with pytest.raises(InputError, match="has no default"):
        _boundaries(None, "boundary")


def test_every_convention_says_where_it_was_read() -> None:
    assert all(convention.source for convention in CONVENTIONS.values())
