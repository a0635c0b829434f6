"""The pair that gets damaged, what a damage is, and the changes that damages are made of."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.numpy
import safetensors.torch
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

PAIR, PROMPTS = "random.pair.toml", "prompts.jsonl"
GOLDEN = "golden/random/reference-cpu-float32.json"
TARGET_CONFIG, TARGET_WEIGHTS = "target/config.json", "target/model.safetensors"
GENERATION_CONFIG = "target/generation_config.json"
DRAFT_CONFIG, DRAFT_WEIGHTS = "draft/config.json", "draft/model.safetensors"
# What `harness measure --json` printed; beside the pair for the tests that compare with it only.
RESULT = "result.json"
# What a user may write or copy, and therefore break.
FILES = (
    PAIR,
    PROMPTS,
    TARGET_CONFIG,
    GENERATION_CONFIG,
    TARGET_WEIGHTS,
    DRAFT_CONFIG,
    DRAFT_WEIGHTS,
    GOLDEN,
)
IDS = "eagle_aux_hidden_state_layer_ids"

DEEP = 100_000
# Shallow enough for a parser, too deep for whoever walks over the value afterwards.
STEEP = 900


@dataclass(frozen=True)
class Damage:
    """One damaged input.

    Attributes:
        name: What is wrong.
        apply: Spoils a pair's folder.
        says: What the message must contain.
        options: The command with its options; `PAIR` stands for the pair file, `RESULT` for what measuring it printed.
    """

    name: str
    apply: Callable[[Path], object]
    says: tuple[str, ...]
    options: tuple[str, ...] = ("check", "PAIR")


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Return every name under a folder with its bytes, `None` for a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def replace_text(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def edit_json(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    body = json.loads(file.read_text())
    before = json.dumps(body)
    change(body)
    assert json.dumps(body) != before
    file.write_text(json.dumps(body))


def edit_tensors(file: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = safetensors.torch.load_file(file)
    change(tensors)
    safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})


def edit_prompts(file: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    change(lines)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def edit_arrays(root: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the golden's tensors and name them by their new hash, as a careful hand would."""
    golden = root / GOLDEN
    arrays: dict[str, Any] = safetensors.numpy.load_file(golden.parent / json.loads(golden.read_text())["tensors"])
    change(arrays)
    replace_golden_tensors(root, safetensors.numpy.save(arrays))


def replace_golden_tensors(root: Path, data: bytes) -> None:
    """Put other bytes in the place of the golden's tensors, under the name that it then has for them."""
    golden = root / GOLDEN
    text = golden.read_text()
    old, new = json.loads(text)["tensors"], f"{hashlib.sha256(data).hexdigest()}.safetensors"
    (golden.parent / old).unlink()
    (golden.parent / new).write_bytes(data)
    golden.write_text(text.replace(old, new))


def add_tokenizer(root: Path, *, template: str | None = None) -> None:
    """Give the target a tokenizer that knows the words w0 to w59."""
    words = {f"w{index}": index for index in range(60)}
    tokenizer = Tokenizer(WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="w0")
    fast.chat_template = template
    fast.save_pretrained(root / "target")


# Changes of whole files


def remove(name: str) -> Callable[[Path], object]:
    return lambda root: (root / name).unlink()


def remove_tree(name: str) -> Callable[[Path], object]:
    return lambda root: shutil.rmtree(root / name)


def write(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda root: (root / name).write_bytes(data)


def truncate(name: str) -> Callable[[Path], object]:
    def apply(root: Path) -> None:
        data = (root / name).read_bytes()
        (root / name).write_bytes(data[: len(data) * 2 // 3])

    return apply


def prepend(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda root: (root / name).write_bytes(data + (root / name).read_bytes())


def to_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def into_folder(name: str) -> Callable[[Path], object]:
    return lambda root: to_folder(root / name)


def into_file(name: str) -> Callable[[Path], object]:
    def apply(root: Path) -> None:
        shutil.rmtree(root / name)
        (root / name).write_text("a file\n")

    return apply


# Changes within a file


def pair_text(old: str, new: str) -> Callable[[Path], object]:
    return lambda root: replace_text(root / PAIR, old, new)


def change_json(name: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    return lambda root: edit_json(root / name, change)


def set_value(name: str, *keys: str | int, to: Any) -> Callable[[Path], object]:
    def change(body: Any) -> None:
        for key in keys[:-1]:
            body = body[key]
        body[keys[-1]] = to

    return change_json(name, change)


def drop_value(name: str, *keys: str | int) -> Callable[[Path], object]:
    def change(body: Any) -> None:
        for key in keys[:-1]:
            body = body[key]
        del body[keys[-1]]

    return change_json(name, change)


def change_tensor(
    name: str, tensor: str, change: Callable[[torch.Tensor], torch.Tensor | None]
) -> Callable[[Path], object]:
    """Change one tensor, in place or by another."""

    def edit(tensors: dict[str, torch.Tensor]) -> None:
        value = change(tensors[tensor])
        if value is not None:
            tensors[tensor] = value

    return lambda root: edit_tensors(root / name, edit)


def without_tensor(name: str, tensor: str) -> Callable[[Path], object]:
    return lambda root: edit_tensors(root / name, lambda tensors: tensors.pop(tensor))


def with_tensor(name: str, tensor: str, value: torch.Tensor) -> Callable[[Path], object]:
    return lambda root: edit_tensors(root / name, lambda tensors: tensors.update({tensor: value}))


def put(value: float, index: tuple[int, ...]) -> Callable[[torch.Tensor], None]:
    def change(tensor: torch.Tensor) -> None:
        tensor[index] = value

    return change


def change_prompts(change: Callable[[list[dict[str, Any]]], object]) -> Callable[[Path], object]:
    return lambda root: edit_prompts(root / PROMPTS, change)


def replace_line(number: int, text: str) -> Callable[[Path], object]:
    """Replace a line of the prompts file, counted from 1."""

    def apply(root: Path) -> None:
        lines = (root / PROMPTS).read_text().splitlines()
        lines[number - 1] = text
        (root / PROMPTS).write_text("\n".join(lines) + "\n")

    return apply


def change_arrays(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    return lambda root: edit_arrays(root, change)


def layer_ids(*ids: int) -> Callable[[Path], object]:
    return set_value(DRAFT_CONFIG, "eagle_config", IDS, to=list(ids))


def all_of(*changes: Callable[[Path], object]) -> Callable[[Path], object]:
    def apply(root: Path) -> None:
        for change in changes:
            change(root)

    return apply


# Damage that all files of a kind have in common


def broken_json(file: str, what: str, advice: str) -> list[Damage]:
    """Return damage to a file of one JSON object."""
    return [
        Damage(f"{what} missing", remove(file), (file, "does not exist", advice)),
        Damage(f"{what} is a folder", into_folder(file), (file, "cannot be read", "expected a text file")),
        Damage(f"{what} empty", write(file, b""), (file, "not valid JSON", advice)),
        Damage(f"{what} garbage", write(file, b"\x80\x04\x95"), (file, "0x80", "UTF-8 text")),
        Damage(f"{what} truncated", truncate(file), (file, "line ", "not valid JSON", advice)),
        Damage(f"{what} in latin-1", write(file, b'{"note": "caf\xe9"}'), (file, "0xe9", "expected UTF-8")),
        Damage(f"{what} with a BOM", prepend(file, b"\xef\xbb\xbf"), (file, "byte order mark", "UTF-8")),
        Damage(
            f"{what} nested deeply", write(file, b"[" * DEEP), (file, "not valid JSON", "nested too deeply", advice)
        ),
        Damage(f"{what} is a list", write(file, b"[1, 2]"), (file, "found list", "expected an object")),
        Damage(f"{what} with a repeated key", write(file, b'{"a": 1, "a": 2}'), (file, "'a' occurs twice", advice)),
    ]
