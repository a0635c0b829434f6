"""Checkpoints from a hub: which files each command downloads, and at which commit. The hub is a fake one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

from harness.commands.prepare import prepare
from harness.errors import InputError
from harness.golden.store import load_golden
from harness.pair.pair import load_pair
from suites.support.command import Command
from suites.support.fake_hub import FakeHub
from suites.support.faulty_server import serving, told_by
from suites.support.random_pair import PAIR, SERVABLE, write_pair

TARGET, DRAFT = "owner/target", "owner/draft"
# What a repository holds besides, none of which a command needs: other formats, code, what training left.
_OTHERS = (
    *("README.md", ".gitattributes", "modeling_evil.py", "configuration_evil.py", "trainer_state.json", "runs/a.json"),
    *("model-q4.gguf", "consolidated.safetensors", "tf_model.h5", "flax_model.msgpack", "training_args.bin"),
    *("original/params.json", "original/consolidated.00.pth", "original/tokenizer.model", "onnx/model.onnx"),
    *("onnx/config.json", "onnx/deep/tokenizer.json", "openvino/model.bin", "adapter/model.safetensors"),
)
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "additional_chat_templates/tool.jinja")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub(tmp_path)
    monkeypatch.setattr("huggingface_hub.snapshot_download", fake.snapshot_download)
    return fake


def _add_others(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")


@pytest.fixture
def file(tmp_path: Path, hub: FakeHub) -> Path:
    """A pair file in an empty folder, with target and draft on the hub."""
    made = write_pair(tmp_path / "made", draft=SERVABLE)
    for name, others in (("target", (*_OTHERS, *_TOKENIZER)), ("draft", (*_OTHERS, "tokenizer.json"))):
        folder = made.parent / name
        _add_others(folder, *others)
        _pickle(folder)
        hub.push(f"owner/{name}", folder)
    (tmp_path / "pair").mkdir()
    shutil.copy(made.parent / "prompts.jsonl", tmp_path / "pair")
    text = PAIR.replace('"target"\n', f'"{TARGET}"\n').replace('"draft"\n', f'"{DRAFT}"\n')
    (tmp_path / "pair" / made.name).write_text(text)
    return tmp_path / "pair" / made.name


def _pickle(folder: Path) -> None:
    """Add the same weights in the older format."""
    torch.save(safetensors.torch.load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")


_DESCRIPTIONS = {
    *(f"{TARGET}:{name}" for name in ("config.json", "generation_config.json", *_TOKENIZER)),
    f"{DRAFT}:config.json",
}
_WEIGHTS = {f"{TARGET}:model.safetensors", f"{DRAFT}:model.safetensors"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("trace", "PAIR", "--static"), _DESCRIPTIONS),
        (("power", "PAIR"), _DESCRIPTIONS),
        (("measure", "PAIR", "--prompts", "1"), _DESCRIPTIONS | _WEIGHTS),
        (("trace", "PAIR"), _DESCRIPTIONS | _WEIGHTS),
        (("record", "PAIR"), _DESCRIPTIONS | _WEIGHTS),
        (("check", "PAIR"), _DESCRIPTIONS),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_a_command_downloads_what_it_needs(
    file: Path, hub: FakeHub, harness: Command, words: tuple[str, ...], expected: set[str]
) -> None:
    """Those that need a golden stop before they measure: there is none yet."""
    answer = harness(*(str(file) if word == "PAIR" else word for word in words))
    assert answer.status == (2 if words[0] in ("check", "power") else 0), answer.err
    assert set(hub.downloaded) == expected
    assert len(hub.downloaded) == len(expected)


def test_a_server_needs_no_weights(file: Path, hub: FakeHub, harness: Command) -> None:
    assert harness("record", file).status == 0
    told = told_by(prepare(file))
    shutil.rmtree(hub.root / "cache")
    hub.downloaded.clear()
    with serving(told) as server:
        answer = harness("check", file, "--endpoint", server.endpoint, "--json")
    assert answer.status == 0, answer.err
    assert set(hub.downloaded) == _DESCRIPTIONS
    assert not [note for note in answer.json["notes"] if "safetensors" in note or "absent" in note]


def _shards(
    folder: Path, names: tuple[str, str], index: str, save: Callable[[dict[str, torch.Tensor], Path], None]
) -> None:
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    half = len(tensors) // 2
    parts = (dict(list(tensors.items())[:half]), dict(list(tensors.items())[half:]))
    for name, part in zip(names, parts, strict=True):
        save(part, folder / name)
    weight_map = {tensor: name for name, part in zip(names, parts, strict=True) for tensor in part}
    (folder / index).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def _save_safetensors(tensors: dict[str, torch.Tensor], file: Path) -> None:
    safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})


def _save_pickle(tensors: dict[str, torch.Tensor], file: Path) -> None:
    torch.save(tensors, file)


_SAFE = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
_PICKLED = ("pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin")


def _whole_pickle(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def _safe_shards(folder: Path) -> None:
    _shards(folder, _SAFE, "model.safetensors.index.json", _save_safetensors)
    _shards(folder, _PICKLED, "pytorch_model.bin.index.json", _save_pickle)
    (folder / "model.safetensors").unlink()


def _pickled_shards(folder: Path) -> None:
    _shards(folder, _PICKLED, "pytorch_model.bin.index.json", _save_pickle)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").unlink()


@pytest.mark.parametrize(
    ("arrange", "weights"),
    [(_whole_pickle, ("pytorch_model.bin",)), (_safe_shards, _SAFE), (_pickled_shards, _PICKLED)],
    ids=["a pickle alone", "shards", "shards of pickles alone"],
)
def test_safetensors_are_preferred_and_shards_are_downloaded_by_their_index(
    file: Path, hub: FakeHub, harness: Command, arrange: Callable[[Path], None], weights: tuple[str, ...]
) -> None:
    for name in ("target", "draft"):
        folder = file.parent.parent / "made" / name
        arrange(folder)
        hub.push(f"owner/{name}", folder)
    static = harness("trace", file, "--static", "--json")
    assert static.status == 0
    assert "there are no weights to compare with" in str(static.json["steps"])
    assert not [name for name in hub.downloaded if name.endswith((".safetensors", ".bin"))]
    assert harness("measure", file, "--prompts", "1").status == 0
    fetched = {name for name in hub.downloaded if name.endswith((".safetensors", ".bin"))}
    assert fetched == {f"owner/{name}:{weight}" for name in ("target", "draft") for weight in weights}


def test_a_revision_is_kept_to_and_recorded_as_a_commit(file: Path, hub: FakeHub, harness: Command) -> None:
    """Even if the branch moves between the configs and the weights, and whichever name it had."""
    old = {name: hub.names[f"owner/{name}", "main"] for name in ("target", "draft")}
    pair = load_pair(file)
    for name in ("target", "draft"):
        folder = file.parent.parent / "made" / name
        (folder / "README.md").write_text("newer")
        hub.push(f"owner/{name}", folder)
    pair.fetch_weights()
    assert {name: one.path.name for name, one in pair.checkpoints.items()} == old
    assert (pair.target.path / "model.safetensors").is_file()
    assert pair.revisions == old
    assert load_pair(file).revisions != old
    text = f'target_revision = "v1"\ndraft_revision = "{old["draft"]}"\n{file.read_text()}'
    hub.names[TARGET, "v1"] = old["target"]
    file.write_text(text)
    assert load_pair(file).revisions == old
    assert harness("record", file).status == 0
    golden = load_golden(next((file.parent / "golden" / "random").glob("*.json")))
    assert golden.document.revisions == old
    # The commit has other weights by now, or the same: that it is another one is told, and decides nothing.
    file.write_text(text.replace('"v1"', '"main"'))
    answer = harness("check", file, "--json")
    assert answer.status == 0
    new = hub.names[TARGET, "main"]
    told = f"the target is at commit {new} of the hub, the golden was recorded at {old['target']}"
    assert [note for note in answer.json["notes"] if "commit" in note] == [told]


@pytest.mark.parametrize("key", ["target", "draft"])
def test_a_revision_that_there_is_not(file: Path, key: str) -> None:
    file.write_text(f'{key}_revision = "nowhere"\n{file.read_text()}')
    with pytest.raises(InputError, match=f"the {key} is neither a folder nor available from the hub") as caught:
        load_pair(file)
    assert caught.value.found == f"owner/{key} at nowhere"


def test_a_folder_has_no_revision_and_is_not_asked_for(tmp_path: Path, hub: FakeHub) -> None:
    pair = load_pair(write_pair(tmp_path / "mine"))
    pair.fetch_weights()
    assert pair.revisions == {}
    assert hub.asked == 0


def test_weights_in_the_cache_are_not_asked_for_again(file: Path, hub: FakeHub) -> None:
    pair = load_pair(file)
    pair.fetch_weights("draft")
    assert {name for name in hub.downloaded if "model" in name} == {f"{DRAFT}:model.safetensors"}
    pair.fetch_weights()
    asked = hub.asked
    pair.fetch_weights()
    assert hub.asked == asked
    assert hub.downloaded.count(f"{DRAFT}:model.safetensors") == 1
