"""`harness conformance` on model files written here: each way of capturing, rules that changed, classes that lie."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import pytest

from harness.conformance import forward, matrix, whole
from harness.conformance.asked import WHOLE_ENGINE, AskedIds, asked_lists
from harness.conformance.matrix import Facts, ForwardAnswer, build_matrix
from harness.errors import EngineError, InputError
from harness.facts import known
from harness.facts.known import KNOWN, find_known, not_judged
from harness.facts.reading.setters import CaptureOutcome, run_setter
from harness.facts.reading.sources import SglangSources, read_sources
from harness.facts.sglang import LAST
from suites.support.command import Command

LIST_LOOP = """
    def forward(self, input_ids):
        aux = AuxHiddenStateList()
        for i in range(self.start_layer, self.end_layer):
            hidden = self.layers[i](hidden, capture_output=aux.capture if i in self.layers_to_capture else None)
        return hidden, aux
"""
FLAG_LOOP = """
    def forward(self, input_ids):
        aux = AuxHiddenStateList()
        for i in range(self.start_layer, self.end_layer):
            layer = self.layers[i]
            hidden = layer(hidden, captured=aux if getattr(layer, "_is_layer_to_capture", False) else None)
        return hidden, aux
"""
FLAG_SETTER = """
    def set_eagle3_layers_to_capture(self, layers_to_capture: list[int]):
        self.layers_to_capture = layers_to_capture
        for layer_id in self.layers_to_capture:
            setattr(self.layers[layer_id], "_is_layer_to_capture", True)
"""
PLUS_ONE = "[val + 1 for val in layer_ids]"


def _setter(given: str = PLUS_ONE, default: str = "[2, num_layers // 2, num_layers - 3]", call: bool = False) -> str:
    told = "self.model.set_eagle3_layers_to_capture({})" if call else "self.model.layers_to_capture = {}"
    return f"""
    def set_eagle3_layers_to_capture(self, layer_ids: Optional[List[int]] = None):
        if not get_parallel().pp_group.is_last_rank or not self.pp_group.is_last_rank:
            return
        self.capture_aux_hidden_states = True
        if layer_ids is None:
            num_layers = self.config.num_hidden_layers
            {told.format(default)}
        else:
            {told.format(given)}
"""


def _model(name: str, setter: str, loop: str = LIST_LOOP, *, decoder_extra: str = "", decoder: str = "Decoder") -> str:
    return f"""
class {decoder}(nn.Module):
    def __init__(self, config):
        self.layers_to_capture = []
{decoder_extra}
{loop}

class {name}(nn.Module):
    def __init__(self, config):
        self.config = config
        self.model = {decoder}(config)
{setter}

EntryClass = {name}
"""


def _folder(folder: Path, version: str = LAST, **models: str) -> Path:
    package = folder / "sglang"
    (package / "srt" / "models").mkdir(parents=True, exist_ok=True)
    (package / "_version.py").write_text(f"__version__ = version = '{version}'\n")
    for name, text in models.items():
        (package / "srt" / "models" / f"{name}.py").write_text(textwrap.dedent(text))
    return folder


def _sources(folder: Path, version: str = LAST, **models: str) -> SglangSources:
    return read_sources(_folder(folder, version, **models))


def _run(sources: SglangSources, ids: list[int] | None, name: str | None = None) -> Any:
    classes = {cls.name: cls for cls in sources.capturing_classes()}
    return run_setter(sources, classes[name] if name else next(iter(classes.values())), ids, 8)


LLAMA = _model("LlamaForCausalLM", _setter())


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
    reading = _run(_sources(tmp_path, llama=LLAMA), ids)
    assert reading.outcome == CaptureOutcome(boundaries)
    assert reading.sets == ("layers_to_capture",)
    assert reading.same_mechanism
    assert reading.decoder == "llama.py: Decoder"


def test_flags_wrap_below_zero_and_raise_past_the_end(tmp_path: Path) -> None:
    model = _model("Qwen2MoeForCausalLM", _setter(call=True), FLAG_LOOP, decoder_extra=FLAG_SETTER)
    sources = _sources(tmp_path, qwen2_moe=model)
    assert _run(sources, [1, 3, 6]).outcome == CaptureOutcome((2, 4, 7))
    assert _run(sources, [1, 3, 6]).sets == ("layers_to_capture", "_is_layer_to_capture")
    assert _run(sources, [-2, 1, 3]).outcome == CaptureOutcome((2, 4, 7))
    past = _run(sources, [1, 3, 7]).outcome
    assert past.boundaries is None
    assert past.error.startswith("IndexError in the setter")


def test_a_setter_that_sets_one_thing_while_the_forward_tests_another_captures_nothing(tmp_path: Path) -> None:
    sets_list = _sources(tmp_path / "a", llama=_model("LlamaForCausalLM", _setter(), FLAG_LOOP))
    reading = _run(sets_list, [1, 3, 6])
    assert reading.outcome == CaptureOutcome(())
    assert not reading.same_mechanism
    assert [entry.verdict for entry in build_matrix(sets_list).red] == [matrix.DIFFERS]
    only_flags = FLAG_SETTER.replace("self.layers_to_capture = layers_to_capture", "pass").replace(
        "in self.layers_to_capture:", "in layers_to_capture:"
    )
    flags = _model("LlamaForCausalLM", _setter(call=True), LIST_LOOP, decoder_extra=only_flags)
    reading = _run(_sources(tmp_path / "b", llama=flags), [1, 3, 6])
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
    sources = _sources(tmp_path, gpt_oss=_model("GptOssForCausalLM", _setter(), loop))
    assert _run(sources, [1, 3, 7]).outcome == CaptureOutcome((2, 4, 8))
    assert _run(sources, [1, 3, 8]).outcome == CaptureOutcome((2, 4))


def test_a_packer_counts(tmp_path: Path) -> None:
    loop = LIST_LOOP.replace("AuxHiddenStateList()", "AuxHiddenStatePacker(len(self.layers_to_capture))")
    sources = _sources(tmp_path, deepseek_v2=_model("DeepseekV2ForCausalLM", _setter(), loop))
    assert _run(sources, [1, 3, 6]).outcome == CaptureOutcome((2, 4, 7))
    for ids in ([3, 3, 6], [1, 3, 7], [-2, 1, 3]):
        assert _run(sources, ids).outcome.boundaries is None


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
    sources = _sources(tmp_path, llama=_model("LlamaForCausalLM", _setter(), loop))
    assert _run(sources, [1, 3]).outcome.boundaries == others
    assert _run(sources, [-1, 1, 3]).outcome.boundaries == embedding


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
{_setter()}

class Qwen3_5ForCausalLM(nn.Module):
    body_cls = llama.Decoder

    def __init__(self, config):
        self.config = config
        self.model = self.body_cls(config)
{_setter()}

EntryClass = [MistralForCausalLM, Qwen3_5ForCausalLM]
"""
    sources = _sources(tmp_path, llama=LLAMA, wrapper=wrapper, vl=base, made=made)
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
{_setter("list(layer_ids)")}

class First(Shared):
    pass

class Second(Shared):
{_setter()}

class LlamaForCausalLM(First, Second):
    pass

EntryClass = LlamaForCausalLM
"""
    llama = LLAMA.replace("EntryClass = LlamaForCausalLM", "")
    assert _run(_sources(tmp_path, llama=llama, shared=shared), [1, 3]).outcome == CaptureOutcome((2, 4))


def test_a_decoder_of_another_package_is_told_and_not_guessed(tmp_path: Path) -> None:
    model = LLAMA.replace("self.model = Decoder(config)", "self.model = elsewhere(config)")
    sources = _sources(tmp_path, llama=model)
    reading = _run(sources, [1])
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
    assert _run(_sources(tmp_path, llama=model), [1, 3]).outcome == CaptureOutcome((2, 4))


def test_a_setter_cannot_reach_out(tmp_path: Path) -> None:
    """What runs is a release's own text, so it is given nothing to open files or modules with."""
    written = tmp_path / "written"
    for attempt in (f"open({str(written)!r}, 'w')", "__import__('os').getcwd()", "eval('1')"):
        model = LLAMA.replace("        self.capture_aux_hidden_states = True\n", f"        self.kept = {attempt}\n")
        outcome = _run(_sources(tmp_path, llama=model), [1]).outcome
        # A name outside the list of builtins is a stand-in: it answers, and does nothing.
        assert outcome == CaptureOutcome((2,))
    assert not written.exists()


CHANGED = {
    "as is": _setter("list(layer_ids)"),
    "plus two": _setter("[val + 2 for val in layer_ids]"),
    "default shifted": _setter(default="[3, num_layers // 2 + 1, num_layers - 2]"),
    "first id decides": _setter("[val + 1 for val in layer_ids] if layer_ids[0] == 1 else list(layer_ids)"),
    "last id decides": _setter("list(layer_ids) if max(layer_ids) == 8 else [val + 1 for val in layer_ids]"),
}


@pytest.mark.parametrize("change", CHANGED)
def test_a_changed_rule_is_red_and_names_the_class(change: str, tmp_path: Path, harness: Command) -> None:
    models = {
        "llama": _model("LlamaForCausalLM", CHANGED[change]),
        "qwen2": _model("Qwen2ForCausalLM", _setter()),
    }
    outcome = harness("conformance", "--sglang", _folder(tmp_path, **models), "--no-forward", "--json")
    assert outcome.status == 1
    verdicts = {entry["architecture"]: entry["verdict"] for entry in outcome.json["releases"][0]["classes"]}
    assert verdicts == {"LlamaForCausalLM": "differs", "Qwen2ForCausalLM": "agrees"}
    told = harness("conformance", "--sglang", tmp_path, "--no-forward")
    assert "LlamaForCausalLM (llama.py: LlamaForCausalLM): differs" in told.out
    assert "Qwen2ForCausalLM (" not in told.out


def test_the_rules_as_they_are_pass(tmp_path: Path, harness: Command) -> None:
    outcome = harness("conformance", "--sglang", _folder(tmp_path, llama=LLAMA), "--no-forward", "--json")
    assert outcome.status == 0
    (release,) = outcome.json["releases"]
    (entry,) = release["classes"]
    assert (release["sglang"], release["judged_as"]) == (LAST, LAST)
    assert (entry["verdict"], entry["obtained"], entry["same_mechanism"]) == ("agrees", "setter only", True)
    assert len(entry["rows"]) == len(asked_lists())
    # Told on stderr as it goes, so that stdout stays one JSON object.
    assert "LlamaForCausalLM" in outcome.err


def test_a_newer_release_is_held_against_the_newest_facts(tmp_path: Path) -> None:
    built = build_matrix(_sources(tmp_path / "same", "0.6.1", llama=LLAMA))
    assert (built.version, built.judged_as, built.red) == ("0.6.1", LAST, [])
    changed = build_matrix(_sources(tmp_path / "new", "0.6.1", llama=_model("LlamaForCausalLM", _setter("layer_ids"))))
    assert [entry.architecture for entry in changed.red] == ["LlamaForCausalLM"]


def test_a_class_without_facts_is_red(tmp_path: Path) -> None:
    unknown = build_matrix(_sources(tmp_path / "a", novel=_model("NovelForCausalLM", _setter()))).classes[0]
    assert unknown.verdict == matrix.NO_FACTS
    # DeepSeek has rows, and none for this release.
    early = build_matrix(_sources(tmp_path / "b", "0.5.3", deepseek_v2=_model("DeepseekV2ForCausalLM", _setter())))
    assert early.classes[0].verdict == matrix.NO_FACTS
    assert "0.5.5 to 0.5.12" in str(early.classes[0].reason)


@pytest.mark.parametrize("name", ["LlamaForCausalLMEagle3", "DeepseekV3ForCausalLMNextN", "EmbeddingGemmaModel"])
def test_drafts_and_embedders_are_listed_and_not_judged(name: str, tmp_path: Path) -> None:
    model = LLAMA + f"class {name}(LlamaForCausalLM):\n    pass\nEntryClass = [LlamaForCausalLM, {name}]\n"
    model = model.replace("EntryClass = LlamaForCausalLM\n", "")
    verdicts = {entry.architecture: entry.verdict for entry in build_matrix(_sources(tmp_path, llama=model)).classes}
    assert verdicts == {"LlamaForCausalLM": matrix.AGREES, name: matrix.NOT_JUDGED}


GEMMA_LOOP = """
    def forward(self, input_ids):
        aux, residual = [], None
        for i, layer in enumerate(self.layers):
            if i in self.layers_to_capture:
                aux.append(hidden_states)
            hidden_states, residual = layer(hidden_states, residual)
        if num_layers in self.layers_to_capture:
            aux.append(hidden_states)
        return hidden_states, aux
"""


def test_a_known_difference_is_told_with_its_evidence_and_is_not_red(tmp_path: Path, harness: Command) -> None:
    folder = _folder(tmp_path, gemma3_causal=_model("Gemma3ForCausalLM", _setter(), GEMMA_LOOP))
    outcome = harness("conformance", "--sglang", folder, "--json")
    assert outcome.status == 0
    entry = outcome.json["releases"][0]["classes"][0]
    assert entry["verdict"] == "differs: known"
    assert "sglang#39286" in entry["evidence"]
    rows = {row["asked"]: row for row in entry["rows"]}
    assert rows["first id 1"]["captured"] == [None, None, None]
    assert rows["-1 for the embedding"]["captured"] == [0, None, None]


def test_a_known_difference_that_is_gone_is_red(tmp_path: Path, harness: Command) -> None:
    loop = GEMMA_LOOP.replace(
        "hidden_states, residual = layer(hidden_states, residual)", "hidden_states = layer(hidden_states)"
    )
    folder = _folder(tmp_path, gemma3_causal=_model("Gemma3ForCausalLM", _setter(), loop))
    outcome = harness("conformance", "--sglang", folder)
    assert outcome.status == 1
    assert "known difference is gone" in outcome.out
    # A release before it had none, and is held against that.
    assert (
        harness(
            "conformance",
            "--sglang",
            _folder(tmp_path / "old", "0.5.16", gemma3_causal=_model("Gemma3ForCausalLM", _setter(), loop)),
        ).status
        == 0
    )


def test_a_known_difference_does_not_excuse_another(tmp_path: Path) -> None:
    setter = _setter("[val + 2 for val in layer_ids]")
    loop = GEMMA_LOOP.replace(
        "aux.append(hidden_states)\n            hidden", "aux.append(hidden_states + residual)\n            hidden"
    )
    sources = _sources(tmp_path, gemma3_causal=_model("Gemma3ForCausalLM", setter, loop))
    assert [entry.verdict for entry in build_matrix(sources).classes] == [matrix.DIFFERS]


def test_known_differences_name_classes_that_the_facts_know() -> None:
    for fault in KNOWN:
        for architecture in fault.classes:
            for version in (fault.first, fault.last):
                assert find_known(architecture, version) is fault
                assert matrix.missing_facts(architecture, version) is None
                assert not_judged(architecture) is None
    assert find_known("Gemma3ForCausalLM", "0.5.16") is None
    assert find_known("Qwen3_5ForConditionalGeneration", "0.5.22") is None


@pytest.mark.parametrize(
    ("facts", "outcome", "agrees"),
    [
        (Facts((2, 4)), CaptureOutcome((2, 4)), True),
        (Facts((2, 4)), CaptureOutcome((4, 2)), False),
        (Facts((2, 4)), CaptureOutcome((2, None)), False),
        (Facts((2, 4)), CaptureOutcome(None, "raises"), False),
        (Facts((2, 4), ("order",)), CaptureOutcome(None, "raises"), True),
        (Facts((2, 4), ("order",)), CaptureOutcome((2,)), False),
        (Facts(None, refused="no", meant=(0, 2)), CaptureOutcome(None, "raises"), True),
        (Facts(None, refused="no", meant=(0, 2)), CaptureOutcome((2,)), True),
        (Facts(None, refused="no", meant=(0, 2)), CaptureOutcome((0, 2)), False),
        (Facts(None, refused="no", meant=(-1, 2)), CaptureOutcome((2, 7)), True),
        (Facts(None, refused="no", meant=(-1, 2)), CaptureOutcome((3, 7)), False),
        (Facts(None, refused="no", meant=(3, 5, 9)), CaptureOutcome((2, 4)), False),
        (Facts(None, refused="no", meant=(3, 5, 9)), CaptureOutcome((3, 5)), True),
    ],
)
def test_what_counts_as_agreement(facts: Facts, outcome: CaptureOutcome, agrees: bool) -> None:
    assert facts.agrees(outcome) is agrees


def test_a_forward_that_ran_is_believed_over_the_setter(tmp_path: Path) -> None:
    sources = _sources(tmp_path, llama=LLAMA)

    def moved(architecture: str, asked: Any) -> ForwardAnswer:
        assert architecture == "LlamaForCausalLM"
        return ForwardAnswer({entry.name: CaptureOutcome((1,)) for entry in asked})

    entry = build_matrix(sources, forwards=moved).classes[0]
    assert (entry.obtained, entry.verdict) == ("ran forward", matrix.DIFFERS)

    def failed(_architecture: str, asked: Any) -> ForwardAnswer:
        return ForwardAnswer({asked[0].name: CaptureOutcome((2, 4, 5))}, "the process ended")

    entry = build_matrix(sources, forwards=failed).classes[0]
    assert (entry.obtained, entry.verdict, entry.reason) == ("ran forward", matrix.AGREES, "the process ended")
    assert [row.obtained for row in entry.rows] == ["ran forward"] + ["setter only"] * (len(entry.rows) - 1)


@pytest.mark.parametrize(("received", "verdict"), [((2, 4, 7), matrix.AGREES), ((2, 4, 8), matrix.DIFFERS)])
def test_what_a_whole_engine_hands_on_is_believed_first(
    received: tuple[int, ...], verdict: str, tmp_path: Path
) -> None:
    def handed(_architecture: str, asked: Any) -> ForwardAnswer:
        assert {entry.name: entry.ids for entry in asked}[WHOLE_ENGINE] == (1, 3, 6)
        return ForwardAnswer({WHOLE_ENGINE: CaptureOutcome((2, 4, 7))}, whole={WHOLE_ENGINE: CaptureOutcome(received)})

    entry = build_matrix(_sources(tmp_path, llama=LLAMA), forwards=handed).classes[0]
    assert (entry.obtained, entry.verdict) == ("ran end to end", verdict)
    rows = {row.asked.name: row for row in entry.rows}
    assert (rows[WHOLE_ENGINE].obtained, rows[WHOLE_ENGINE].outcome) == ("ran end to end", CaptureOutcome(received))
    assert {row.obtained for name, row in rows.items() if name != WHOLE_ENGINE} == {"setter only"}


def test_a_forward_that_differs_is_not_hidden_by_a_whole_engine_that_agrees(tmp_path: Path) -> None:
    def both(_architecture: str, _asked: Any) -> ForwardAnswer:
        return ForwardAnswer({WHOLE_ENGINE: CaptureOutcome((2,))}, whole={WHOLE_ENGINE: CaptureOutcome((2, 4, 7))})

    entry = build_matrix(_sources(tmp_path, llama=LLAMA), forwards=both).classes[0]
    assert entry.verdict == matrix.DIFFERS
    (row,) = [row for row in entry.rows if row.verdict == matrix.DIFFERS]
    assert (row.obtained, row.outcome) == ("ran forward", CaptureOutcome((2,)))


def test_why_a_whole_engine_did_not_run_names_no_place_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def died(*_: Any) -> None:
        raise EngineError(
            "SGLang died; the last error in its log is KeyError: 'x'; its log is /some/log, the end of it:\n  x"
        )

    monkeypatch.setattr(whole, "_write_pair", died)
    (entry,) = [entry for entry in asked_lists() if entry.name == WHOLE_ENGINE]
    assert whole.run_whole("LlamaForCausalLM", entry) == "SGLang died; the last error in its log is KeyError: 'x'"


def test_a_class_that_does_not_run_says_why() -> None:
    answer = forward.run_forwards("KimiK25ForConditionalGeneration", asked_lists())
    assert answer.outcomes == {}
    assert "no tiny target" in str(answer.reason)


def test_the_markdown_says_everything_and_names_no_place_of_the_machine(tmp_path: Path, harness: Command) -> None:
    gemma = _model("Gemma3ForCausalLM", _setter(), GEMMA_LOOP)
    draft = LLAMA.replace(
        "EntryClass = LlamaForCausalLM",
        "class LlamaEagle(LlamaForCausalLM):\n    pass\nEntryClass = [LlamaForCausalLM, LlamaEagle]",
    )
    folder = _folder(
        tmp_path / "release", llama=draft, qwen2=_model("Qwen2ForCausalLM", _setter()), gemma3_causal=gemma
    )
    file = tmp_path / "docs.md"
    assert harness("conformance", "--sglang", folder, "--markdown", file).status == 0
    text = file.read_text()
    assert f"## sglang {LAST}" in text
    assert "`harness conformance --sglang release --markdown docs.md`" in text
    for part in (
        "LlamaForCausalLM",
        "Qwen2ForCausalLM",
        "Gemma3ForCausalLM",
        "sglang#39286",
        "LlamaEagle: it is a draft",
    ):
        assert part in text
    assert "*none*, *none*, *none*" in text
    assert "0, 2, 4" in text
    assert str(tmp_path) not in text


def test_a_wheel_is_read_as_a_folder_is(tmp_path: Path, harness: Command) -> None:
    folder = _folder(tmp_path / "unpacked", "0.5.12", qwen2=_model("Qwen2ForCausalLM", _setter()))
    wheel = tmp_path / "sglang-0.5.12-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in (folder / "sglang").rglob("*.py"):
            archive.write(file, file.relative_to(folder))
    outcome = harness("conformance", "--sglang", wheel, "--sglang", folder, "--json")
    assert outcome.status == 0
    one, other = outcome.json["releases"]
    assert (one["sglang"], one["classes"]) == ("0.5.12", other["classes"])


def test_bad_input_is_told(tmp_path: Path, harness: Command) -> None:
    (tmp_path / "empty").mkdir()
    other = tmp_path / "other-1.0-py3-none-any.whl"
    broken = tmp_path / "sglang-0.5.12-py3-none-any.whl"
    other.write_bytes(b"")
    broken.write_bytes(b"no zip")
    folder = _folder(tmp_path / "release", llama=LLAMA)
    nameless = _folder(tmp_path / "nameless", llama=LLAMA)
    (nameless / "sglang" / "_version.py").write_text("")
    wrong = _folder(tmp_path / "wrong", llama="class Llama(:\n")
    for arguments, told in (
        (["--sglang", tmp_path / "empty"], "srt/models"),
        (["--sglang", tmp_path / "missing"], "srt/models"),
        (["--sglang", other], "found other"),
        (["--sglang", broken], "cannot be read"),
        (["--sglang", nameless], "_version.py"),
        (["--sglang", wrong], "cannot be parsed"),
        (["--sglang", folder, "--only", "MambaForCausalLM"], "expected LlamaForCausalLM"),
        (["--sglang", folder, "--markdown", other / "docs.md"], "other-1.0"),
    ):
        outcome = harness("conformance", *arguments, "--json")
        assert outcome.status == 2, (arguments, outcome.err)
        assert told in outcome.json["error"]["message"]


@pytest.mark.parametrize("arguments", [[], ["--forward", "--sglang", "here"]])
def test_without_sglang_a_release_must_be_given(
    arguments: list[str], tmp_path: Path, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.facts.reading.sources.find_installed", lambda: None)
    _folder(tmp_path / "here", llama=LLAMA)
    monkeypatch.chdir(tmp_path)
    outcome = harness("conformance", *arguments, "--json")
    assert outcome.status == 2
    assert "sglang is not installed" in outcome.json["error"]["message"]


def test_the_forward_runs_only_for_the_files_that_are_installed(
    tmp_path: Path, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = _folder(tmp_path / "installed", llama=LLAMA)
    monkeypatch.setattr("harness.facts.reading.sources.find_installed", lambda: installed / "sglang")
    monkeypatch.setattr("harness.engines.sglang.installed.cpu_environment", dict)
    asked: list[tuple[str, bool]] = []

    def ran(architecture: str, lists: tuple[AskedIds, ...], *, whole: bool) -> ForwardAnswer:
        asked.append((architecture, whole))
        return ForwardAnswer({entry.name: CaptureOutcome(None, "it raised") for entry in lists})

    monkeypatch.setattr(forward, "run_forwards", ran)
    other = _folder(tmp_path / "other", llama=LLAMA + "# changed\n")
    assert harness("conformance", "--sglang", other).status == 0
    assert harness("conformance", "--no-forward").status == 0
    assert asked == []
    assert harness("conformance").status == 1
    assert harness("conformance", "--end-to-end").status == 1
    assert asked == [("LlamaForCausalLM", False), ("LlamaForCausalLM", True)]


def test_without_the_platform_for_it_no_class_is_run(
    tmp_path: Path, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = _folder(tmp_path / "installed", llama=LLAMA)
    monkeypatch.setattr("harness.facts.reading.sources.find_installed", lambda: installed / "sglang")
    monkeypatch.setattr("harness.engines.sglang.installed._CPU_PLATFORM", "no_such_platform")
    outcome = harness("conformance", "--json")
    assert outcome.status == 0
    assert "no class is run: SGLang runs on a CPU only by a platform plugin" in outcome.err
    assert outcome.json["releases"][0]["obtained"] == {"setter only": 1}
    for asked in ("--forward", "--end-to-end"):
        outcome = harness("conformance", asked, "--json")
        assert outcome.status == 2
        assert "plugins/sglang-cpu" in outcome.json["error"]["message"]


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


def test_reading_a_release_imports_nothing_of_it(tmp_path: Path) -> None:
    folder = _folder(tmp_path, llama="raise SystemExit('imported')\n" + LLAMA)
    code = f"""
import json, sys
from pathlib import Path
from harness.facts.reading.sources import read_sources
from harness.conformance.matrix import build_matrix
verdicts = [entry.verdict for entry in build_matrix(read_sources(Path({str(folder)!r}))).classes]
print(json.dumps([verdicts, "sglang" in sys.modules, "torch" in sys.modules]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert json.loads(done.stdout or "null") == [["agrees"], False, False], done.stderr


def test_sources_that_import_each_other_in_a_circle_are_no_endless_search(tmp_path: Path) -> None:
    models = {"a": "from sglang.srt.models.b import Thing\n", "b": "from sglang.srt.models.a import Thing\n"}
    sources = _sources(tmp_path, **models)
    assert sources.find_class("a", "Thing") is None
    with pytest.raises(InputError):
        build_matrix(sources, only=("Thing",))


def test_known_is_used_by_the_matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its entry, the same class is red."""
    monkeypatch.setattr(known, "KNOWN", ())
    sources = _sources(tmp_path, gemma3_causal=_model("Gemma3ForCausalLM", _setter(), GEMMA_LOOP))
    assert [entry.verdict for entry in build_matrix(sources).red] == [matrix.DIFFERS]
