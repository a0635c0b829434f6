"""A checkpoint is data: code that it brings is not run, and code that it names is not fetched."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from harness.commands.measure import measure
from harness.commands.prepare import prepare
from harness.errors import InputError
from harness.pair.pair import load_pair, load_prompts
from suites.support.builtin_pairs import FIXTURES
from suites.support.coded_checkpoint import bring_code, marker_of
from suites.support.random_pair import PAIR, write_pair

KERNEL = "evil/attention"


@pytest.mark.parametrize(
    "changes",
    [
        {"attn_implementation": KERNEL},
        {"_attn_implementation": KERNEL},
        {"attn_implementation": f"{KERNEL}@main:flash"},
        {"attn_implementation": f"flash_attention_2|{KERNEL}"},
        {"attn_implementation": {"": "sdpa", "text_config": KERNEL}},
        {"attn_implementation": {"text_config": {"": KERNEL}}},
        {"attn_implementation": [KERNEL]},
        {"experts_implementation": KERNEL},
        {"text_config": {"attn_implementation": KERNEL}},
        {"vision_config": {"parts": [{"_attn_implementation": KERNEL}]}},
    ],
    ids=json.dumps,
)
def test_a_kernel_of_a_hub_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    file = write_pair(tmp_path)
    config = tmp_path / "target" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | changes))
    with pytest.raises(InputError, match="names code to be run, which the harness does not fetch") as caught:
        load_pair(file)
    assert caught.value.file == str(config)
    assert "_implementation" in str(caught.value.key)


def test_implementations_of_the_library_itself_are_not(tmp_path: Path) -> None:
    file = write_pair(tmp_path)
    config = tmp_path / "target" / "config.json"
    own = {"attn_implementation": "eager", "_attn_implementation": None, "experts_implementation": {"": "eager"}}
    config.write_text(json.dumps(json.loads(config.read_text()) | own))
    measure(prepare(file))


def _copy_tiny(folder: Path) -> Path:
    """Copy the tiny pair with all of its files, and return the pair file."""
    for name in ("tiny", "pairs"):
        shutil.copytree(FIXTURES / name, folder / name)
    return folder / "pairs" / "tiny.pair.toml"


def test_code_of_a_checkpoint_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Target, draft, tokenizer and chat template are loaded, and the pair runs on transformers' own class."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    file = _copy_tiny(tmp_path)
    folders = [load_pair(file).target.path, load_pair(file).draft.path]
    for folder in folders:
        bring_code(folder)
    assert measure(prepare(file), prompts="1").acceptance.rounds > 0
    assert not [folder for folder in folders if marker_of(folder).exists()]


def test_the_code_would_run_if_it_were_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counterpart: what the test above brings along is code that transformers finds."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    target = load_pair(_copy_tiny(tmp_path)).target.path
    bring_code(target)
    get_class_from_dynamic_module("evil.EvilAutoModel", str(target))
    for module in [name for name in sys.modules if name.startswith("transformers_modules")]:
        del sys.modules[module]
    assert marker_of(target).exists()


def test_a_tokenizer_that_only_the_checkpoint_has_is_refused(tmp_path: Path) -> None:
    file = write_pair(tmp_path, pair=PAIR.replace('"none"', '"target"'))
    (tmp_path / "prompts.jsonl").write_text('{"id": "a", "text": "hello"}\n')
    bring_code(tmp_path / "target")
    config = tmp_path / "target" / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"tokenizer_class": "EvilAutoTokenizer"}))
    with pytest.raises(InputError, match="tokenizer cannot be loaded"):
        load_prompts(load_pair(file))
    assert not marker_of(tmp_path / "target").exists()


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.system('touch ran') }}",
        "{{ self.__init__.__globals__ }}",
        "{% include '/etc/hostname' %}",
        "{% import 'os' as os %}{{ os.system('touch ran') }}",
        "{{ open('/etc/hostname').read() }}",
    ],
)
def test_a_chat_template_reaches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: str) -> None:
    """It is rendered by jinja2's sandbox, without a loader."""
    monkeypatch.chdir(tmp_path)
    file = _copy_tiny(tmp_path)
    (file.parent / "evil.jinja").write_text(template)
    (file.parent / "one.jsonl").write_text('{"id": "a", "messages": [{"role": "user", "content": "hello"}]}\n')
    ours = ('chat_template = "evil.jinja"', 'prompts = "one.jsonl"')
    others = [line for line in file.read_text().splitlines() if not line.startswith(("chat_template", "prompts"))]
    file.write_text("\n".join((*ours, *others)))
    with pytest.raises(InputError, match="the chat template cannot be applied") as caught:
        load_prompts(load_pair(file))
    assert "Error" in str(caught.value.found)
    assert not (tmp_path / "ran").exists()


class _Evil:
    """A pickle that makes a file when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.marker,)


@pytest.mark.parametrize("name", ["target", "draft"])
def test_code_in_a_pickle_of_weights_is_not_run(tmp_path: Path, name: str) -> None:
    file = write_pair(tmp_path)
    marker = tmp_path / "ran"
    (tmp_path / name / "model.safetensors").unlink()
    torch.save({"fc.weight": _Evil(marker)}, tmp_path / name / "pytorch_model.bin")
    with pytest.raises(InputError, match="weights cannot be read"):
        measure(prepare(file))
    assert not marker.exists()
    # The counterpart: the same file read without the guard.
    torch.load(tmp_path / name / "pytorch_model.bin", weights_only=False)
    assert marker.exists()
