"""What a pair's files mean: settings, prompts, chat templates, where built-in pairs are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from harness.errors import InputError
from harness.pair.builtin import builtin_root, find_pair
from harness.pair.pair import load_pair, load_prompts
from harness.pair.prompts import read_prompt_lines, select_prompts
from suites.support.builtin_pairs import ROOT
from suites.support.random_pair import PAIR, VOCAB, write_pair

TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }} {{ message['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}assistant{% endif %}{% if enable_thinking %} think{% endif %}"
)


def _write_tokenizer(folder: Path, template: str | None = TEMPLATE) -> dict[str, int]:
    words = ["<s>", "user", "system", "assistant", "think", "hello", "world", "be", "brief"]
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<s>")
    if template:
        fast.chat_template = template
    fast.save_pretrained(folder)
    return vocabulary


def _ids(file: Path) -> list[tuple[int, ...]]:
    return [prompt.ids for prompt in load_prompts(load_pair(file))]


def _pair(folder: Path, prompts: list[dict[str, object]], template_key: str) -> Path:
    file = write_pair(folder, pair=PAIR.replace('"none"', f'"{template_key}"'))
    (folder / "prompts.jsonl").write_text("\n\n".join(json.dumps(line) for line in prompts) + "\n")
    return file


def test_text_messages_and_token_ids(tmp_path: Path) -> None:
    prompts: list[dict[str, object]] = [
        {"id": "a", "text": "hello world"},
        {"id": "b", "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]},
        {"id": "c", "token_ids": [5, 6, 63]},
    ]
    file = _pair(tmp_path, prompts, "target")
    words = _write_tokenizer(tmp_path / "target")
    expected = ["user hello world assistant", "system be brief user hello assistant"]
    assert _ids(file)[:2] == [tuple(words[word] for word in text.split()) for text in expected]
    assert _ids(file)[2] == (5, 6, 63)


def test_a_template_of_ones_own_and_thinking(tmp_path: Path) -> None:
    file = _pair(tmp_path, [{"id": "a", "text": "hello"}], "mine.jinja")
    (tmp_path / "mine.jinja").write_text(TEMPLATE.replace("assistant", "think"))
    words = _write_tokenizer(tmp_path / "target", template=None)
    file.write_text("thinking = true\n" + file.read_text())
    assert _ids(file) == [tuple(words[word] for word in ("user", "hello", "think", "think"))]


def test_without_a_template_text_is_text(tmp_path: Path) -> None:
    file = _pair(tmp_path, [{"id": "a", "text": "hello world"}], "none")
    words = _write_tokenizer(tmp_path / "target")
    assert _ids(file) == [(words["hello"], words["world"])]
    (tmp_path / "prompts.jsonl").write_text('{"id": "a", "messages": [{"role": "user", "content": "hello"}]}')
    with pytest.raises(InputError, match="messages need a chat template"):
        _ids(file)


def test_a_target_without_a_template_is_told(tmp_path: Path) -> None:
    file = _pair(tmp_path, [{"id": "a", "text": "hello"}], "target")
    _write_tokenizer(tmp_path / "target", template=None)
    with pytest.raises(InputError, match='chat_template = "none"'):
        _ids(file)


def test_selection_of_prompts(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"id": name, "text": "x"}) + "\n" for name in "abcd"))
    lines = read_prompt_lines(file)

    def chosen(selection: str | None) -> list[str]:
        return [line.id for line in select_prompts(lines, selection, file)]

    assert chosen(None) == ["a", "b", "c", "d"]
    assert chosen("2") == ["a", "b"]
    assert chosen("d, b") == ["b", "d"]
    for wrong in ("0", "5", "a,z", ",", ""):
        with pytest.raises(InputError, match="--prompts"):
            chosen(wrong)


def test_defaults_of_a_pair_file(tmp_path: Path) -> None:
    settings = load_pair(write_pair(tmp_path)).settings
    assert settings.engine.name == "reference"
    assert settings.engine.dtype == "float32"
    assert settings.gate.margin == 0.01
    assert settings.gate.alpha == 0.001
    assert settings.decode.comparable()["num_draft_tokens"] == 5


def test_the_checkout_around_the_current_folder_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert builtin_root() == ROOT
    monkeypatch.chdir(ROOT / "suites" / "unit")
    assert builtin_root() == ROOT
    other = tmp_path / "clone"
    (other / "fixtures" / "pairs").mkdir(parents=True)
    (other / "pyproject.toml").write_text('[project]\nname = "acceptance-harness"\n')
    (other / "fixtures" / "pairs" / "tiny.pair.toml").write_text("")
    (other / "deep").mkdir()
    monkeypatch.chdir(other / "deep")
    assert find_pair("tiny") == other / "fixtures" / "pairs" / "tiny.pair.toml"


def test_a_file_wins_over_a_builtin_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").write_text("")
    assert find_pair("tiny") == Path("tiny")


def test_a_hub_id_that_cannot_be_had_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    file = write_pair(tmp_path, pair=PAIR.replace('target = "target"', 'target = "nobody/nothing-here"'))
    with pytest.raises(InputError, match="neither a folder nor available from the hub"):
        load_pair(file)


def test_prompts_are_known_by_their_tokens(tmp_path: Path) -> None:
    prompts = load_prompts(load_pair(write_pair(tmp_path)))
    assert len({prompt.hash for prompt in prompts}) == len(prompts)
    assert all(max(prompt.ids) < VOCAB for prompt in prompts)
