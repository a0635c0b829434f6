"""Layer-id conventions: the same integers under each, and where one cannot say a boundary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import InputError
from harness.facts.conventions import CONVENTIONS
from harness.facts.layer_ids import read_ids, write_ids
from harness.facts.sglang import MODEL_FILES


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
    with pytest.raises(InputError, match="does not stand for a hidden state") as error:
        _boundaries(ids, convention, 8)
    assert "found boundary" in str(error.value)
    assert "expected a boundary from 0" in str(error.value)


def test_what_is_not_known_is_not_guessed() -> None:
    with pytest.raises(InputError, match="unknown layer-id convention"):
        _boundaries([1], "nobody")
    with pytest.raises(InputError, match=r"the rule by which .* reads layer ids of this target is not known"):
        read_ids([1], "sglang==0.5.12", num_layers=61, architecture="BertModel")
    with pytest.raises(InputError, match=r"was not read .*sglang==0\.5\.0.*0\.5\.1 to 0\.5\.16, 0\.5\.17 to 0\.5\.23"):
        read_ids([1], "sglang==0.5.0", num_layers=24, architecture="GptOssForCausalLM")
    with pytest.raises(InputError, match="was not read"):
        read_ids([1], "sglang==9.0", num_layers=32, architecture="LlamaForCausalLM")
    with pytest.raises(InputError, match="version is not valid"):
        read_ids([1], "sglang==new", num_layers=32, architecture="LlamaForCausalLM")
    with pytest.raises(InputError, match="does not have versions"):
        _boundaries([1], "specforge==0.2.0")
    with pytest.raises(InputError, match="does not have default ids"):
        _boundaries(None, "boundary")


def test_every_convention_says_where_it_was_read() -> None:
    assert all(convention.source for convention in CONVENTIONS.values())


DEEPSEEK, GPT_OSS = "DeepseekV3ForCausalLM", "GptOssForCausalLM"


@pytest.mark.parametrize(
    ("convention", "architecture", "layers", "ids", "boundaries"),
    [
        ("sglang==0.5.23", DEEPSEEK, 61, [2, 30, 58], (2, 30, 58)),
        ("sglang==0.5.13", DEEPSEEK, 61, [1, 29, 57], (2, 30, 58)),
        ("sglang==0.5.12", DEEPSEEK, 61, [2, 30, 58], (3, 31, 59)),
        ("sglang==0.5.12", "KimiK25ForConditionalGeneration", 61, [2, 30, 58], (3, 31, 59)),
        ("sglang-sentinel", DEEPSEEK, 61, [-1, 2, 30], (0, 3, 31)),
        ("sglang==0.5.23", GPT_OSS, 36, [24, 30, 36], (24, 30, 36)),
        ("sglang==0.5.23", GPT_OSS, 36, [1, 17, 32], (2, 18, 33)),
        ("sglang==0.5.16", GPT_OSS, 36, [24, 30, 35], (25, 31)),
        ("sglang==0.5.17", GPT_OSS, 36, [24, 30, 35], (25, 31, 36)),
        ("sglang==0.5.22", "LlamaForCausalLM", 32, [-1, 1, 3], (0, 2, 4)),
        ("sglang", "LlamaForCausalLM", 32, [1, 15, 28], (2, 16, 29)),
        ("speculators==0.3", "LlamaForCausalLM", 32, [28, 1, 1], (2, 29)),
        ("speculators==0.4.1", "LlamaForCausalLM", 32, [2, 16, 29], (2, 16, 29)),
        ("speculators", "LlamaForCausalLM", 32, None, (2, 16, 29)),
        ("sglang==0.5.18", "MiniMaxM3SparseForConditionalGeneration", 60, None, (3, 31, 58)),
        ("transformers", "LlamaForCausalLM", 32, [0, 31], (0, 31)),
    ],
)
def test_rules_by_class_and_version(
    convention: str, architecture: str, layers: int, ids: list[int] | None, boundaries: tuple[int, ...]
) -> None:
    reading = read_ids(ids, convention, num_layers=layers, architecture=architecture)
    assert reading.boundaries == boundaries
    assert reading.source


def test_llamas_loop_had_no_residual_for_the_embedding_before_0522() -> None:
    with pytest.raises(InputError, match=r"embedding, which sglang==0\.5\.21 cannot capture"):
        read_ids([-1, 1, 3], "sglang==0.5.21", num_layers=32, architecture="LlamaForCausalLM")


def test_an_upgrade_alone_moves_kimis_boundaries() -> None:
    """The founding case: one config, two releases."""
    before, after = (
        read_ids([2, 30, 58], f"sglang=={version}", num_layers=61, architecture=DEEPSEEK).boundaries
        for version in ("0.5.12", "0.5.13")
    )
    assert before == tuple(boundary + 1 for boundary in after)


@pytest.mark.parametrize(
    ("convention", "architecture", "layers", "ids", "why"),
    [
        ("transformers", "LlamaForCausalLM", 32, [32], "after the final norm"),
        ("sglang==0.5.12", DEEPSEEK, 61, [-1, 2, 30], "embedding, which sglang==0.5.12 cannot capture"),
        ("sglang==0.5.23", DEEPSEEK, 61, [-1, 2, 30], "does not stand for a hidden state"),
        ("sglang==0.5.3", DEEPSEEK, 61, [2, 30, 58], "was not read"),
    ],
)
def test_what_stands_for_no_boundary_is_refused(
    convention: str, architecture: str, layers: int, ids: list[int], why: str
) -> None:
    with pytest.raises(InputError, match=why):
        read_ids(ids, convention, num_layers=layers, architecture=architecture)


@pytest.mark.parametrize(
    ("convention", "architecture", "layers", "boundaries", "why"),
    [
        ("sglang", "LlamaForCausalLM", 32, (2, 32), "boundary 32, before the final norm, is never reached"),
        ("sglang", "LlamaForCausalLM", 32, (16, 2), "ascending order, each once"),
        ("sglang", "LlamaForCausalLM", 32, (2, 2, 16), "ascending order, each once"),
        ("sglang==0.5.12", DEEPSEEK, 61, (0, 30), "cannot capture"),
        ("sglang==0.5.23", DEEPSEEK, 61, (1, 30), r"ids \[1, 30\] would be read as \[2, 31\]"),
        ("transformers", "LlamaForCausalLM", 32, (2, 32), "after the final norm"),
    ],
)
def test_what_a_convention_cannot_say_is_refused_with_the_reason(
    convention: str, architecture: str, layers: int, boundaries: tuple[int, ...], why: str
) -> None:
    with pytest.raises(InputError, match=why) as error:
        write_ids(boundaries, convention, num_layers=layers, architecture=architecture)
    assert "cannot say these boundaries" in str(error.value)


_NAMES = st.sampled_from(
    [*CONVENTIONS, "sglang", "sglang==0.5.12", "sglang==0.5.13", "sglang==0.5.16", "sglang==0.5.23", "speculators==0.2"]
)


@given(data=st.data(), convention=_NAMES, architecture=st.sampled_from(sorted(MODEL_FILES)), layers=st.integers(7, 80))
def test_there_and_back_is_the_identity_where_it_is_defined(
    data: st.DataObject, convention: str, architecture: str, layers: int
) -> None:
    boundaries = tuple(data.draw(st.lists(st.integers(0, layers), min_size=1, max_size=5)))
    try:
        written = write_ids(boundaries, convention, num_layers=layers, architecture=architecture)
    except InputError:
        return
    assert written.boundaries == boundaries
    assert not written.lost
    read = read_ids(written.ids, convention, num_layers=layers, architecture=architecture)
    assert read == written


@given(data=st.data(), convention=_NAMES, architecture=st.sampled_from(sorted(MODEL_FILES)), layers=st.integers(7, 80))
def test_what_is_read_can_be_written_unless_something_was_lost(
    data: st.DataObject, convention: str, architecture: str, layers: int
) -> None:
    ids = data.draw(st.lists(st.integers(-1, layers), min_size=1, max_size=5))
    try:
        reading = read_ids(ids, convention, num_layers=layers, architecture=architecture)
    except InputError:
        return
    assert all(0 <= boundary <= layers for boundary in reading.boundaries)
    if reading.boundaries:
        try:
            again = write_ids(reading.boundaries, convention, num_layers=layers, architecture=architecture)
        except InputError:
            # A rule that depends on the first id, which the lost order has moved: [1, 0] of DeepSeek's is [1, 2].
            assert reading.lost
            return
        assert again.boundaries == reading.boundaries
