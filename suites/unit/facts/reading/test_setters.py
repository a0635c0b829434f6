"""What a setter and its capture loop do, read in model files written here: each way of capturing."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.conformance import matrix
from harness.conformance.matrix import build_matrix
from harness.facts.reading.setters import CaptureOutcome, run_setter
from suites.support.sglang_release import (
    FLAG_LOOP,
    FLAG_SETTER,
    LIST_LOOP,
    LLAMA,
    read_release,
    run_first_setter,
    write_model,
    write_setter,
)


@pytest.mark.parametrize(
    ("ids", "boundaries"),
    [
        (None, (2, 4, 5)),
        ([1, 3, 6], (2, 4, 7)),
        ([6, 3, 1], (2, 4, 7)),
        ([3, 3], (4,)),
        ([-1], (0,)),
        ([7], ()),
        ([], ()),
    ],
)
def test_a_list_is_captured_in_ascending_order_each_once(
    ids: list[int] | None, boundaries: tuple[int, ...], tmp_path: Path
) -> None:
    reading = run_first_setter(read_release(tmp_path, llama=LLAMA), ids)
    assert reading.outcome == CaptureOutcome(boundaries)
    assert reading.sets == ("layers_to_capture",)
    assert reading.same_mechanism
    assert reading.decoder == "llama.py: Decoder"


def test_flags_wrap_below_zero_and_raise_past_the_end(tmp_path: Path) -> None:
    model = write_model("Qwen2MoeForCausalLM", write_setter(call=True), FLAG_LOOP, decoder_extra=FLAG_SETTER)
    sources = read_release(tmp_path, qwen2_moe=model)
    assert run_first_setter(sources, [1, 3, 6]).outcome == CaptureOutcome((2, 4, 7))
    assert run_first_setter(sources, [1, 3, 6]).sets == ("layers_to_capture", "_is_layer_to_capture")
    assert run_first_setter(sources, [-2, 1, 3]).outcome == CaptureOutcome((2, 4, 7))
    past = run_first_setter(sources, [1, 3, 7]).outcome
    assert past.boundaries is None
    assert past.error.startswith("IndexError in the setter")


def test_a_setter_that_sets_one_thing_while_the_forward_tests_another_captures_nothing(tmp_path: Path) -> None:
    sets_list = read_release(tmp_path / "a", llama=write_model("LlamaForCausalLM", write_setter(), FLAG_LOOP))
    reading = run_first_setter(sets_list, [1, 3, 6])
    assert reading.outcome == CaptureOutcome(())
    assert not reading.same_mechanism
    assert [entry.verdict for entry in build_matrix(sets_list).red] == [matrix.DIFFERS]
    only_flags = FLAG_SETTER.replace("self.layers_to_capture = layers_to_capture", "pass").replace(
        "in self.layers_to_capture:", "in layers_to_capture:"
    )
    flags = write_model("LlamaForCausalLM", write_setter(call=True), LIST_LOOP, decoder_extra=only_flags)
    reading = run_first_setter(read_release(tmp_path / "b", llama=flags), [1, 3, 6])
    assert (reading.outcome, reading.sets, reading.same_mechanism) == (
        CaptureOutcome(()),
        ("_is_layer_to_capture",),
        False,
    )


def test_the_last_boundary_where_the_forward_asks_once_more(tmp_path: Path) -> None:
    loop = LIST_LOOP.replace(
        "        return",
        "        if num_layers in self.layers_to_capture:\n            aux.append(hidden)\n        return",
    )
    sources = read_release(tmp_path, gpt_oss=write_model("GptOssForCausalLM", write_setter(), loop))
    assert run_first_setter(sources, [1, 3, 7]).outcome == CaptureOutcome((2, 4, 8))
    assert run_first_setter(sources, [1, 3, 8]).outcome == CaptureOutcome((2, 4))


def test_a_packer_counts(tmp_path: Path) -> None:
    loop = LIST_LOOP.replace("AuxHiddenStateList()", "AuxHiddenStatePacker(len(self.layers_to_capture))")
    sources = read_release(tmp_path, deepseek_v2=write_model("DeepseekV2ForCausalLM", write_setter(), loop))
    assert run_first_setter(sources, [1, 3, 6]).outcome == CaptureOutcome((2, 4, 7))
    for ids in ([3, 3, 6], [1, 3, 7], [-2, 1, 3]):
        assert run_first_setter(sources, ids).outcome.boundaries is None


@pytest.mark.parametrize(
    ("appended", "carried", "embedding", "others"),
    [
        ("hidden + residual", "hidden, residual", None, (2, 4)),
        ("hidden + residual if residual is not None else hidden", "hidden, residual", (0, 2, 4), (2, 4)),
        ("hidden", "hidden, residual", (0, None, None), (None, None)),
        ("hidden", "hidden", (0, 2, 4), (2, 4)),
    ],
)
def test_a_residual_that_is_added_unasked_or_left_out(
    appended: str,
    carried: str,
    embedding: tuple[int | None, ...] | None,
    others: tuple[int | None, ...],
    tmp_path: Path,
) -> None:
    loop = f"""
    def forward(self, input_ids):
        aux, residual = [], None
        for i in range(self.start_layer, self.end_layer):
            if i in self.layers_to_capture:
                aux.append({appended})
            {carried} = self.layers[i](hidden, residual)
        return hidden, aux
"""
    sources = read_release(tmp_path, llama=write_model("LlamaForCausalLM", write_setter(), loop))
    assert run_first_setter(sources, [1, 3]).outcome.boundaries == others
    assert run_first_setter(sources, [-1, 1, 3]).outcome.boundaries == embedding


def test_setters_that_pass_on_are_followed(tmp_path: Path) -> None:
    """By a base's setter, a parameter's default, a method that makes the decoder, and an attribute of the class."""
    wrapper = """
        from sglang.srt.models.llama import LlamaForCausalLM
        class Gemma3ForConditionalGeneration(PreTrainedModel):
            def __init__(self, config):
                self.language_model = None
                if True:
                    self.language_model = LlamaForCausalLM(config=config)
            def set_eagle3_layers_to_capture(self, layer_ids=None):
                if hasattr(self.language_model, "set_eagle3_layers_to_capture"):
                    self.language_model.set_eagle3_layers_to_capture(layer_ids)
        EntryClass = Gemma3ForConditionalGeneration
    """
    base = f"""
from .llama import Decoder

class Flagged(Decoder):
    {FLAG_SETTER}
    {FLAG_LOOP}

class Qwen3VLForConditionalGeneration(nn.Module):
    def __init__(self, config, language_model_cls=Decoder):
        self.config = config
        self.model = language_model_cls(config)

    def set_eagle3_layers_to_capture(self, layer_ids=None):
        chosen = [val + 1 for val in layer_ids]
        if hasattr(self.model, "set_eagle3_layers_to_capture"):
            self.model.set_eagle3_layers_to_capture(chosen)
        else:
            self.model.layers_to_capture = chosen

class Qwen3VLMoeForConditionalGeneration(Qwen3VLForConditionalGeneration):
    def __init__(self, config, language_model_cls=Flagged):
        super().__init__(config, language_model_cls)

EntryClass = [Qwen3VLForConditionalGeneration, Qwen3VLMoeForConditionalGeneration]
"""
    # Neither has a base whose constructor says it as well.
    made = f"""
from sglang.srt.models import llama

class MistralForCausalLM(nn.Module):
    def __init__(self, config):
        self.config = config
        self.model = self._init_model(config)

    def _init_model(self, config):
        return llama.Decoder(config)
{write_setter()}

class Qwen3_5ForCausalLM(nn.Module):
    body_cls = llama.Decoder

    def __init__(self, config):
        self.config = config
        self.model = self.body_cls(config)
{write_setter()}

EntryClass = [MistralForCausalLM, Qwen3_5ForCausalLM]
"""
    sources = read_release(tmp_path, llama=LLAMA, wrapper=wrapper, vl=base, made=made)
    found = {cls.name: run_setter(sources, cls, [1, 3, 6], 8) for cls in sources.capturing_classes()}
    assert {name: reading.outcome for name, reading in found.items()} == dict.fromkeys(
        [
            "LlamaForCausalLM",
            "Gemma3ForConditionalGeneration",
            "Qwen3VLForConditionalGeneration",
            "Qwen3VLMoeForConditionalGeneration",
            "MistralForCausalLM",
            "Qwen3_5ForCausalLM",
        ],
        CaptureOutcome((2, 4, 7)),
    )
    assert found["Qwen3VLMoeForConditionalGeneration"].decoder == "vl.py: Flagged"
    assert found["Qwen3VLForConditionalGeneration"].sets == ("layers_to_capture",)


def test_a_method_is_looked_up_as_python_does(tmp_path: Path) -> None:
    """A base that two others share comes after both: the second one's setter hides it."""
    shared = f"""
from .llama import Decoder

class Shared(nn.Module):
    def __init__(self, config):
        self.model = Decoder(config)
{write_setter("list(layer_ids)")}

class First(Shared):
    pass

class Second(Shared):
{write_setter()}

class LlamaForCausalLM(First, Second):
    pass

EntryClass = LlamaForCausalLM
"""
    llama = LLAMA.replace("EntryClass = LlamaForCausalLM", "")
    assert run_first_setter(read_release(tmp_path, llama=llama, shared=shared), [1, 3]).outcome == CaptureOutcome(
        (2, 4)
    )


def test_a_decoder_of_another_package_is_told_and_not_guessed(tmp_path: Path) -> None:
    model = LLAMA.replace("self.model = Decoder(config)", "self.model = elsewhere(config)")
    sources = read_release(tmp_path, llama=model)
    reading = run_first_setter(sources, [1])
    assert reading.outcome is None
    assert "made by elsewhere" in reading.not_followed
    entry = build_matrix(sources).classes[0]
    assert entry.verdict == matrix.DIFFERS
    assert "made by elsewhere" in str(entry.reason)


def test_a_forward_that_hands_on_to_its_base_is_read_there(tmp_path: Path) -> None:
    outer = """
class Outer(Decoder):
    def forward(self, input_ids):
        return super().forward(input_ids)
"""
    model = LLAMA.replace("self.model = Decoder", "self.model = Outer").replace(
        "\nclass Llama", f"{outer}\nclass Llama"
    )
    assert run_first_setter(read_release(tmp_path, llama=model), [1, 3]).outcome == CaptureOutcome((2, 4))


def test_a_setter_cannot_reach_out(tmp_path: Path) -> None:
    """What runs is a release's own text, so it is given nothing to open files or modules with."""
    written = tmp_path / "written"
    for attempt in (f"open({str(written)!r}, 'w')", "__import__('os').getcwd()", "eval('1')"):
        model = LLAMA.replace("        self.capture_aux_hidden_states = True\n", f"        self.kept = {attempt}\n")
        outcome = run_first_setter(read_release(tmp_path, llama=model), [1]).outcome
        # A name outside the list of builtins is a stand-in: it answers, and does nothing.
        assert outcome == CaptureOutcome((2,))
    assert not written.exists()
