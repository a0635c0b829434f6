"""Ways in which a user's files get damaged, each with what the error must say.

Every entry of `DAMAGES` takes the folder of a whole, recorded random pair and spoils one thing in it.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import safetensors.torch
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from suites.random_pair import VOCAB, WIDTH, write_target

__all__ = [
    "DAMAGES",
    "FILES",
    "Damage",
    "add_tokenizer",
    "edit_arrays",
    "edit_json",
    "edit_prompts",
    "edit_tensors",
    "replace_text",
    "snapshot",
]

PAIR, PROMPTS = "random.pair.toml", "prompts.jsonl"
GOLDEN = "golden/random/reference-cpu-float32.json"
TARGET_CONFIG, TARGET_WEIGHTS = "target/config.json", "target/model.safetensors"
DRAFT_CONFIG, DRAFT_WEIGHTS = "draft/config.json", "draft/model.safetensors"
# What a user may write or copy, and therefore break.
FILES = (
    PAIR,
    PROMPTS,
    TARGET_CONFIG,
    "target/generation_config.json",
    TARGET_WEIGHTS,
    DRAFT_CONFIG,
    DRAFT_WEIGHTS,
    GOLDEN,
)
IDS = "eagle_aux_hidden_state_layer_ids"


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
    old = golden.parent / json.loads(golden.read_text())["tensors"]
    arrays: dict[str, Any] = safetensors.numpy.load_file(old)
    change(arrays)
    data = safetensors.numpy.save(arrays)
    name = f"{hashlib.sha256(data).hexdigest()}.safetensors"
    old.unlink()
    (golden.parent / name).write_bytes(data)
    edit_json(golden, lambda body: body.update(tensors=name))


def add_tokenizer(root: Path, *, template: str | None = None) -> None:
    """Give the target a tokenizer that knows the words w0 to w59."""
    words = {f"w{index}": index for index in range(60)}
    tokenizer = Tokenizer(WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="w0")
    fast.chat_template = template
    fast.save_pretrained(root / "target")


# Changes of whole files


def _remove(name: str) -> Callable[[Path], object]:
    return lambda root: (root / name).unlink()


def _write(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda root: (root / name).write_bytes(data)


def _truncate(name: str) -> Callable[[Path], object]:
    def apply(root: Path) -> None:
        data = (root / name).read_bytes()
        (root / name).write_bytes(data[: len(data) * 2 // 3])

    return apply


def _prepend(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda root: (root / name).write_bytes(data + (root / name).read_bytes())


def _to_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _into_folder(name: str) -> Callable[[Path], object]:
    return lambda root: _to_folder(root / name)


def _into_file(name: str) -> Callable[[Path], object]:
    def apply(root: Path) -> None:
        shutil.rmtree(root / name)
        (root / name).write_text("a file\n")

    return apply


# Changes within a file


def _pair(old: str, new: str) -> Callable[[Path], object]:
    return lambda root: replace_text(root / PAIR, old, new)


def _json(name: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    return lambda root: edit_json(root / name, change)


def _set(name: str, *keys: str | int, to: Any) -> Callable[[Path], object]:
    def change(body: Any) -> None:
        for key in keys[:-1]:
            body = body[key]
        body[keys[-1]] = to

    return _json(name, change)


def _drop(name: str, *keys: str | int) -> Callable[[Path], object]:
    def change(body: Any) -> None:
        for key in keys[:-1]:
            body = body[key]
        del body[keys[-1]]

    return _json(name, change)


def _tensor(name: str, tensor: str, change: Callable[[torch.Tensor], torch.Tensor | None]) -> Callable[[Path], object]:
    """Change one tensor, in place or by another."""

    def edit(tensors: dict[str, torch.Tensor]) -> None:
        value = change(tensors[tensor])
        if value is not None:
            tensors[tensor] = value

    return lambda root: edit_tensors(root / name, edit)


def _without(name: str, tensor: str) -> Callable[[Path], object]:
    return lambda root: edit_tensors(root / name, lambda tensors: tensors.pop(tensor))


def _with(name: str, tensor: str, value: torch.Tensor) -> Callable[[Path], object]:
    return lambda root: edit_tensors(root / name, lambda tensors: tensors.update({tensor: value}))


def _put(value: float, index: tuple[int, ...]) -> Callable[[torch.Tensor], None]:
    def change(tensor: torch.Tensor) -> None:
        tensor[index] = value

    return change


def _prompts(change: Callable[[list[dict[str, Any]]], object]) -> Callable[[Path], object]:
    return lambda root: edit_prompts(root / PROMPTS, change)


def _line(number: int, text: str) -> Callable[[Path], object]:
    """Replace a line of the prompts file, counted from 1."""

    def apply(root: Path) -> None:
        lines = (root / PROMPTS).read_text().splitlines()
        lines[number - 1] = text
        (root / PROMPTS).write_text("\n".join(lines) + "\n")

    return apply


def _arrays(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    return lambda root: edit_arrays(root, change)


def _ids(*ids: int) -> Callable[[Path], object]:
    return _set(DRAFT_CONFIG, "eagle_config", IDS, to=list(ids))


def _all(*changes: Callable[[Path], object]) -> Callable[[Path], object]:
    def apply(root: Path) -> None:
        for change in changes:
            change(root)

    return apply


_DEEP = 100_000
# Shallow enough for a parser, too deep for whoever walks over the value afterwards.
_STEEP = 900


def _missing_and_corrupt() -> list[Damage]:
    golden = f"{PAIR}: golden: the pair has no golden"
    damages = [
        Damage("pair file missing", _remove(PAIR), (PAIR, "no such pair file", "expected a path to a .pair.toml")),
        Damage("pair file is a folder", _into_folder(PAIR), (PAIR, "no such pair file", "expected")),
        Damage("pair file empty", _write(PAIR, b""), (PAIR, "name", "missing", "Next: add name")),
        Damage("pair file garbage", _write(PAIR, b"\x00\x01garbage"), (PAIR, "not valid TOML", "expected")),
        Damage("pair file truncated", _truncate(PAIR), (PAIR,)),
        Damage("pair file in latin-1", _prepend(PAIR, "# caf\xe9\n".encode("latin-1")), (PAIR, "0xe9", "UTF-8")),
        Damage("pair file with a BOM", _prepend(PAIR, b"\xef\xbb\xbf"), (PAIR, "byte order mark", "UTF-8")),
        Damage("pair file nested deeply", _prepend(PAIR, b"x = " + b"[" * _DEEP + b"\n"), (PAIR, "TOML", "expected")),
        Damage("prompts missing", _remove(PROMPTS), (PROMPTS, "does not exist", "Next:")),
        Damage("prompts are a folder", _into_folder(PROMPTS), (PROMPTS, "cannot be read", "a file")),
        Damage("prompts empty", _write(PROMPTS, b""), (PROMPTS, "no prompts", "at least one line")),
        Damage("prompts blank", _write(PROMPTS, b"\n  \n\r\n"), (PROMPTS, "no prompts", "at least one line")),
        Damage("prompts truncated", _truncate(PROMPTS), (PROMPTS, "line 5", "not valid JSON", "expected")),
        Damage("prompts in latin-1", _prepend(PROMPTS, b'{"id":"\xe9","text":"a"}\n'), (PROMPTS, "0xe9", "UTF-8")),
        Damage("prompts with a BOM", _prepend(PROMPTS, b"\xef\xbb\xbf"), (PROMPTS, "byte order mark", "UTF-8")),
        Damage("golden missing", _remove(GOLDEN), ("golden/random", "has no golden", "Next: harness record")),
        Damage("golden folder missing", lambda root: shutil.rmtree(root / "golden"), (golden, "Next: harness record")),
        Damage("golden folder is a file", _into_file("golden"), (golden, "Next: harness record")),
        Damage("golden is a folder", _into_folder(GOLDEN), (GOLDEN, "cannot be read", "expected a file", "Next:")),
        Damage("golden tensors missing", _tensor_file(lambda file: file.unlink()), (".safetensors", "Next: restore")),
        Damage(
            "golden tensors are a folder",
            _tensor_file(_to_folder),
            (".safetensors", "cannot be read", "Next: restore"),
        ),
        Damage(
            "golden tensors empty", _tensor_file(lambda file: file.write_bytes(b"")), (".safetensors", "SHA-256 e3b0c4")
        ),
        Damage(
            "golden tensors truncated",
            _tensor_file(lambda file: file.write_bytes(file.read_bytes()[:-9])),
            (".safetensors", "not the ones that were recorded", "found SHA-256", "expected", "Next: restore"),
        ),
    ]
    for name in ("target", "draft"):
        config, weights = f"{name}/config.json", f"{name}/model.safetensors"
        damages += [
            Damage(f"{name} folder missing", _remove_tree(name), (PAIR, name, "no checkpoint folder", "expected")),
            Damage(f"{name} folder is a file", _into_file(name), (PAIR, name, "no checkpoint folder", "expected")),
            Damage(f"{name} weights missing", _remove(weights), (name, "no weights", "expected model.safetensors")),
            Damage(f"{name} weights are a folder", _into_folder(weights), (name, "no weights", "expected")),
            Damage(f"{name} weights empty", _write(weights, b""), (weights, "cannot be read", "Next: copy")),
            Damage(f"{name} weights truncated", _truncate(weights), (weights, "cannot be read", "Next: copy")),
            Damage(
                f"{name} weights garbage", _write(weights, b"\xff" * 999), (weights, "cannot be read", "Next: copy")
            ),
            Damage(
                f"{name} weights' index names a missing shard",
                _all(
                    _remove(weights),
                    _write(f"{weights}.index.json", b'{"weight_map": {"fc.weight": "model-1-of-2.safetensors"}}'),
                ),
                (f"{weights}.index.json", "weight_map", "found model-1-of-2.safetensors", "expected"),
            ),
            Damage(
                f"{name} weights' index names no files",
                _all(_remove(weights), _write(f"{weights}.index.json", b'{"weight_map": []}')),
                (f"{weights}.index.json", "weight_map", "found []", "expected"),
            ),
        ]
        damages += _broken_json(config, f"{name} config", "Next: point the pair file")
    damages += _broken_json(GOLDEN, "golden", "Next: restore it from version control")[2:]
    damages += _broken_json("target/generation_config.json", "generation config", "expected")[2:]
    return damages


def _tensor_file(change: Callable[[Path], object]) -> Callable[[Path], object]:
    def apply(root: Path) -> None:
        change(next((root / GOLDEN).parent.glob("*.safetensors")))

    return apply


def _remove_tree(name: str) -> Callable[[Path], object]:
    return lambda root: shutil.rmtree(root / name)


def _broken_json(file: str, what: str, advice: str) -> list[Damage]:
    return [
        Damage(f"{what} missing", _remove(file), (file, "does not exist", advice)),
        Damage(f"{what} is a folder", _into_folder(file), (file, "cannot be read", "a file")),
        Damage(f"{what} empty", _write(file, b""), (file, "not valid JSON", advice)),
        Damage(f"{what} garbage", _write(file, b"\x80\x04\x95"), (file, "0x80", "UTF-8 text")),
        Damage(f"{what} truncated", _truncate(file), (file, "line ", "not valid JSON", advice)),
        Damage(f"{what} in latin-1", _write(file, b'{"note": "caf\xe9"}'), (file, "0xe9", "expected UTF-8")),
        Damage(f"{what} with a BOM", _prepend(file, b"\xef\xbb\xbf"), (file, "byte order mark", "UTF-8")),
        Damage(
            f"{what} nested deeply", _write(file, b"[" * _DEEP), (file, "not valid JSON", "nested too deeply", advice)
        ),
        Damage(f"{what} is a list", _write(file, b"[1, 2]"), (file, "found list", "expected an object")),
        Damage(f"{what} with a repeated key", _write(file, b'{"a": 1, "a": 2}'), (file, "'a' stands twice", advice)),
    ]


def _pair_keys() -> list[Damage]:
    def bad(name: str, old: str, new: str, *says: str) -> Damage:
        return Damage(name, _pair(old, new), (PAIR, *says))

    steps, floor = "num_steps = 4", "floor = 0.0"
    return [
        bad("unknown key", "[decode]", "treshold = 1\n[decode]", "treshold: unknown key", "expected one of", "target"),
        bad("unknown key in decode", steps, "num_step = 4", "decode.num_step: unknown key", "num_steps"),
        bad("unknown key in gate", floor, "flor = 0.0", "gate.flor: unknown key", "margin"),
        bad("unknown key in engine", "[decode]", "[engine]\nnam = 1\n[decode]", "engine.nam: unknown key", "dtype"),
        bad("key with a line break", "[decode]", '"a\\nb" = 1\n[decode]', "unknown key", "expected one of"),
        bad("name missing", 'name = "random"', "", "name: the key is missing", "Next: add name"),
        bad(
            "target missing in the pair file", 'target = "target"', "", "target: the key is missing", "Next: add target"
        ),
        bad("name of a wrong type", '"random"', "7", "name", "found 7", "expected", "string"),
        bad("name with a slash", '"random"', '"a/b"', "name", "found 'a/b'", "expected"),
        bad("name of 5,000 letters", '"random"', f'"{"n" * 5000}"', "name", "found 'nnn", "expected"),
        bad("prompts of a wrong type", '"prompts.jsonl"', "[1]", "prompts", "found [1]", "expected", "string"),
        bad("prompts empty in the pair file", '"prompts.jsonl"', '""', "prompts", "found ''", "expected"),
        bad("prompts with a NUL", '"prompts.jsonl"', '"a\\u0000b"', "prompts", "expected"),
        Damage(
            "prompts of 5,000 letters",
            _pair('"prompts.jsonl"', f'"{"p" * 5000}"'),
            ("ppp: the prompts file cannot be read", "too long", "expected"),
        ),
        bad(
            "prompts of an unknown user",
            '"prompts.jsonl"',
            '"~nobody-at-all/p"',
            "prompts",
            "~nobody-at-all",
            "expected",
        ),
        bad("target of 5,000 letters", '"target"', f'"{"t" * 5000}"', "target", "no checkpoint folder", "expected"),
        bad("target of an unknown user", '"target"', '"~nobody-at-all/t"', "target", "~nobody-at-all", "expected"),
        bad("target nowhere", '"target"', '"nowhere/target"', "target", "found nowhere/target", "hub id", "Next:"),
        bad("draft a wrong hub id", '"draft"', '"no such/id"', "draft", "found no such/id", "hub id", "Next:"),
        bad("decode is no section", "[decode]", "decode = 4\n[x]", "decode", "found 4", "expected"),
        bad("steps of a wrong type", steps, 'num_steps = "4"', "decode.num_steps", "found '4'", "integer"),
        bad("steps a float", steps, "num_steps = 4.0", "decode.num_steps", "found 4.0", "integer"),
        bad("steps true", steps, "num_steps = true", "decode.num_steps", "found True", "integer"),
        bad("no steps", steps, "num_steps = 0", "decode.num_steps", "found 0", "greater than or equal to 1"),
        bad("steps a date", steps, "num_steps = 1979-05-27", "decode.num_steps", "found datetime.date", "integer"),
        bad("steps of 5,000 digits", steps, f"num_steps = {'9' * 5000}", "not valid TOML", "expected"),
        bad("steps of 5,000 hex digits", steps, f"num_steps = 0x{'f' * 5000}", "decode.num_steps", "expected"),
        bad(
            "draft tokens that do not fit",
            steps,
            f"{steps}\nnum_draft_tokens = 4",
            "decode",
            "num_draft_tokens = 4 does not fit num_steps = 4",
            "= 5 tokens",
        ),
        bad("a tree", steps, f"{steps}\ntopk = 4\nnum_draft_tokens = 8", "decode.topk", "found 4", "expected 1"),
        bad("sampling", steps, f"{steps}\ntemperature = 0.7", "decode.temperature", "found 0.7", "expected 0.0"),
        bad(
            "temperature of 400 digits", steps, f"{steps}\ntemperature = {10**400}", "decode.temperature", "found 1000"
        ),
        bad("temperature nan", steps, f"{steps}\ntemperature = nan", "decode.temperature", "found nan", "expected"),
        bad(
            "no new tokens", "max_new_tokens = 24", "max_new_tokens = 0", "decode.max_new_tokens", "found 0", "expected"
        ),
        bad(
            "more new tokens than positions",
            "max_new_tokens = 24",
            "max_new_tokens = 600",
            "decode.max_new_tokens",
            "found 600",
            "max_position_embeddings = 512",
        ),
        bad("floor above one", floor, "floor = 1.5", "gate.floor", "found 1.5", "less than or equal to 1"),
        bad("floor nan", floor, "floor = nan", "gate.floor", "found nan", "expected"),
        bad("floor of a wrong type", floor, 'floor = "0.7"', "gate.floor", "found '0.7'", "number"),
        bad("margin inf", floor, f"{floor}\nmargin = inf", "gate.margin", "found inf", "expected"),
        bad("strict of a wrong type", floor, f"{floor}\nstrict = 1", "gate.strict", "found 1", "boolean"),
        bad(
            "dtype unknown", "[decode]", '[engine]\ndtype = "int8"\n[decode]', "engine.dtype", "found 'int8'", "float32"
        ),
        bad("engine unknown", "[decode]", '[engine]\nname = "trtllm"\n[decode]', "engine.name", "trtllm", "reference"),
        bad("device unknown", "[decode]", '[engine]\ndevice = "abacus"\n[decode]', "engine.device", "abacus", "cpu"),
        bad("device meta", "[decode]", '[engine]\ndevice = "meta"\n[decode]', "engine.device", "meta", "expected cpu"),
        bad("device absent", "[decode]", '[engine]\ndevice = "cuda:63"\n[decode]', "engine.device", "cuda:63", "cpu"),
        bad("trained_as missing", 'trained_as = "specforge"', "", "trained_as", "expected specforge", "Next:"),
        bad("trained_as unknown", '"specforge"', '"megatron"', "trained_as", "found megatron", "expected", "specforge"),
        bad("trained_as with a version", '"specforge"', '"eagle==1"', "trained_as", "found eagle==1", "expected eagle"),
        bad(
            "served_by unknown",
            "[decode]",
            'served_by = "tgi"\n[decode]',
            "served_by",
            "found tgi",
            "expected",
            "sglang",
        ),
        bad("broken line", "[decode]", "[decode", "not valid TOML", "line 8", "expected"),
        bad("key twice", "[decode]", 'name = "b"\n[decode]', "not valid TOML", "line", "expected"),
        bad("nested steeply", "[decode]", f"[engine]\nx = {'[' * 300}{']' * 300}\n[decode]", "engine.x", "unknown key"),
        bad(
            "chat template missing",
            'chat_template = "none"',
            'chat_template = "chat.jinja"',
            "chat_template",
            "chat.jinja",
            "does not exist",
            "expected target, none",
        ),
    ]


def _options() -> list[Damage]:
    def bad(name: str, options: tuple[str, ...], *says: str) -> Damage:
        return Damage(name, lambda _: None, says, options)

    return [
        bad("no such built-in pair", ("check", "tinny"), "tinny", "no such pair file", "expected a path"),
        bad("name with a NUL", ("check", "a\0b"), "no such pair file", "expected a path"),
        bad("name too long", ("check", "a" * 5000), "no such pair file", "expected a path"),
        bad("engine option", ("check", "PAIR", "--engine", "vllm"), "--engine", "vllm", "reference"),
        bad("dtype option", ("check", "PAIR", "--dtype", "float31"), "--dtype", "float31", "float32"),
        bad("device option", ("measure", "PAIR", "--device", "abacus"), "--device", "abacus", "expected cpu"),
        bad("empty device option", ("measure", "PAIR", "--device", ""), "--device", "nothing", "expected cpu"),
        bad("device option a path", ("record", "PAIR", "--device", "../../x"), "--device", "../../x", "expected cpu"),
        bad("k option zero", ("measure", "PAIR", "--k", "0"), "--k", "Next: see --help"),
        bad("k option a word", ("measure", "PAIR", "--k", "four"), "--k", "Next: see --help"),
        bad("unknown option", ("measure", "PAIR", "--kk", "4"), "--kk", "Next: see --help"),
        bad("unknown command", ("mesure", "PAIR"), "mesure", "Next: see --help"),
        bad("no pair named", ("measure",), "PAIR", "Next: see --help"),
        bad("no prompt of that id", ("measure", "PAIR", "--prompts", "p9"), PROMPTS, "--prompts", "p9", "expected"),
        bad("no prompts asked for", ("measure", "PAIR", "--prompts", "0"), PROMPTS, "--prompts", "found 0", "1 to 6"),
        bad("too many prompts", ("measure", "PAIR", "--prompts", "7"), PROMPTS, "--prompts", "found 7", "1 to 6"),
        bad("5,000 digits", ("measure", "PAIR", "--prompts", "9" * 5000), PROMPTS, "--prompts", "found 999", "1 to 6"),
        bad("empty selection", ("measure", "PAIR", "--prompts", ""), PROMPTS, "--prompts", "found nothing", "expected"),
        bad(
            "record without a reason",
            ("record", "PAIR"),
            GOLDEN,
            "--reason",
            "already recorded",
            "Next: harness record",
        ),
        bad("record with a blank reason", ("record", "PAIR", "--reason", " "), GOLDEN, "--reason", "expected why"),
        bad("k of another golden", ("check", "PAIR", "--k", "2"), GOLDEN, "decode.num_steps", "found 4", "expected 2"),
        Damage(
            "record that lowers the floor",
            _set(GOLDEN, "floor", to=0.05),
            (GOLDEN, "--reason", "lowered from 0.05 to 0.0", "Next: harness record"),
            ("record", "PAIR"),
        ),
    ]


def _configs() -> list[Damage]:
    def target(name: str, key: str, value: Any, *says: str) -> Damage:
        return Damage(f"target {name}", _set(TARGET_CONFIG, key, to=value), (TARGET_CONFIG, key, *says))

    def draft(name: str, key: str, value: Any, *says: str) -> Damage:
        return Damage(f"draft {name}", _set(DRAFT_CONFIG, key, to=value), (DRAFT_CONFIG, key, *says))

    nested, outer = f"eagle_config.{IDS}", ("eagle_config", IDS)
    return [
        Damage(
            "target without vocab_size", _drop(TARGET_CONFIG, "vocab_size"), (TARGET_CONFIG, "vocab_size", "missing")
        ),
        target("vocab_size a text", "vocab_size", "64", "found '64'", "expected an integer"),
        target("layers a float", "num_hidden_layers", 4.0, "found 4.0", "expected an integer"),
        target("no layers", "num_hidden_layers", 0, "found 0", "from 1 to 4096"),
        target("a billion layers", "num_hidden_layers", 10**9, "found 1000000000", "expected"),
        target("hidden size true", "hidden_size", True, "found True", "expected an integer"),
        target("architectures null", "architectures", None, "found None", "expected a list"),
        target("architectures a lone surrogate", "architectures", [7, "\ud800"], "found [7", "expected a list"),
        target("text_config a list", "text_config", [1], "found [1]", "expected an object"),
        target("eos a text", "eos_token_id", "end", "found 'end'", "expected a list of integers"),
        Damage(
            "generation config's eos a float",
            _set("target/generation_config.json", "eos_token_id", to=1.5),
            ("target/generation_config.json", "eos_token_id", "found 1.5", "expected a list of integers"),
        ),
        Damage(
            "target heads a text",
            _set(TARGET_CONFIG, "num_attention_heads", to="4"),
            ("target", "cannot be loaded", "num_attention_heads", "expected"),
        ),
        Damage(
            "target of another width than its weights",
            _set(TARGET_CONFIG, "intermediate_size", to=40),
            (TARGET_WEIGHTS, "mlp.gate_proj", "found [48, 32]", "expected [40, 32]"),
        ),
        Damage(
            "target width in the billions",
            _set(TARGET_CONFIG, "intermediate_size", to=2 * 10**9),
            (TARGET_WEIGHTS, "mlp.gate_proj", "found [48, 32]", "expected [2000000000, 32]"),
        ),
        Damage(
            "target of fewer layers than its weights",
            _all(_set(TARGET_CONFIG, "num_hidden_layers", to=3), _ids(-1, 1, 2)),
            (TARGET_WEIGHTS, "model.layers.3", "no place for", "expected"),
            ("measure", "PAIR"),
        ),
        Damage(
            "target of more layers than its weights",
            _set(TARGET_CONFIG, "num_hidden_layers", to=5),
            (TARGET_WEIGHTS, "model.layers.4", "lack tensors", "expected"),
            ("measure", "PAIR"),
        ),
        Damage(
            "target with code of its own",
            _all(
                _set(TARGET_CONFIG, "model_type", to="homemade"),
                _set(TARGET_CONFIG, "auto_map", to={"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"}),
            ),
            ("target", "cannot be loaded", "expected"),
        ),
        Damage(
            "target that loads and cannot run",
            _set(TARGET_CONFIG, "return_dict", to=False),
            ("target", "cannot be run", "AttributeError", "expected"),
        ),
        Damage(
            "target that computes NaN",
            _set(TARGET_CONFIG, "rms_norm_eps", to=-1e9),
            ("target", "not finite", "expected"),
            ("measure", "PAIR", "--engine", "reference:sequential"),
        ),
        Damage(
            "draft without hidden_size", _drop(DRAFT_CONFIG, "hidden_size"), (DRAFT_CONFIG, "hidden_size", "missing")
        ),
        draft("of an unknown kind", "architectures", ["MedusaModel"], "found MedusaModel", "LlamaForCausalLMEagle3"),
        draft("of a nameless kind", "architectures", ["\ud800\n"], "expected LlamaForCausalLMEagle3"),
        draft("of two layers", "num_hidden_layers", 2, "found 2", "expected 1"),
        draft("eagle_config a list", "eagle_config", [1], "found [1]", "expected an object"),
        draft("for a larger vocabulary", "vocab_size", 128, "another vocabulary", "found 128", "expected 64", "Next:"),
        draft("for another hidden size", "hidden_size", 64, "another hidden size", "found 64", "expected 32", "Next:"),
        draft("of a wrong target_hidden_size", "target_hidden_size", 16, "found 16", "expected 32", "Next:"),
        draft("of a larger draft vocabulary", "draft_vocab_size", 65, "found 65", "at most vocab_size = 64"),
        draft("heads that do not divide", "num_key_value_heads", 3, "found 3", "a divisor of"),
        draft("head_dim odd", "head_dim", 3, "found 3", "expected an even"),
        draft("eps negative", "rms_norm_eps", -1e-5, "found -1e-05", "expected a number above 0"),
        draft("eps NaN", "rms_norm_eps", math.nan, "found nan", "expected a number above 0"),
        draft("eps of 400 digits", "rms_norm_eps", 10**400, "expected a number above 0"),
        draft("activation unknown", "hidden_act", "sillu", "found sillu", "expected"),
        Damage(
            "draft bias without tensors",
            _set(DRAFT_CONFIG, "attention_bias", to=True),
            (DRAFT_WEIGHTS, "k_proj.bias", "lack tensors", "Next:"),
        ),
        Damage(
            "draft width in the billions",
            _set(DRAFT_CONFIG, "intermediate_size", to=2 * 10**9),
            (DRAFT_WEIGHTS, "mlp", "another shape", "found [32, 48]", "expected [32, 2000000000]"),
        ),
        draft("width beyond any number", "intermediate_size", 10**30, "found 1000", "expected an integer"),
        draft("rope_theta a text", "rope_theta", "ten", "rope", "'ten'", "expected"),
        draft("rope_theta zero", "rope_theta", 0, "rope", "expected"),
        draft("rope_scaling of an unknown type", "rope_scaling", {"rope_type": "spiral"}, "spiral", "expected"),
        draft("rope_scaling by length", "rope_scaling", {"rope_type": "dynamic", "factor": 2.0}, "dynamic", "expected"),
        Damage(
            "draft of the final state",
            _set(DRAFT_CONFIG, "eagle_config", "use_aux_hidden_state", to=False),
            (DRAFT_CONFIG, "use_aux_hidden_state", "found false", "expected true"),
        ),
        Damage("two ids", _ids(-1, 3), (DRAFT_WEIGHTS, "fc.weight", "[32, 96]", "[32, 64]", "2 boundaries")),
        Damage("four ids", _ids(-1, 0, 1, 3), (DRAFT_WEIGHTS, "fc.weight", "[32, 96]", "[32, 128]", "4 boundaries")),
        Damage("id below the range", _ids(-2, 1, 3), (DRAFT_CONFIG, nested, "layer id -2", "from -1 to 3", "Next:")),
        Damage("id above the range", _ids(-1, 1, 4), (DRAFT_CONFIG, nested, "layer id 4", "from -1 to 3", "Next:")),
        Damage("id of 30 digits", _ids(-1, 1, 10**30), (DRAFT_CONFIG, nested, "layer id 1000", "from -1 to 3")),
        Damage("no ids", _ids(), (DRAFT_CONFIG, nested, "found []", "at least one")),
        Damage("ids a text", _set(DRAFT_CONFIG, *outer, to="-1,1,3"), (DRAFT_CONFIG, nested, "a list of integers")),
        Damage(
            "ids floats", _set(DRAFT_CONFIG, *outer, to=[-1.0, 1.0, 3.0]), (DRAFT_CONFIG, nested, "a list of integers")
        ),
        Damage(
            "two keys of ids that disagree",
            _set(DRAFT_CONFIG, IDS, to=[0, 1, 3]),
            (DRAFT_CONFIG, nested, "found [-1, 1, 3] and [0, 1, 3]", "expected one list", "Next: keep"),
        ),
        Damage(
            "two flags that disagree",
            _all(_set(DRAFT_CONFIG, "fc_norm", to=False), _set(DRAFT_CONFIG, "eagle_config", "fc_norm", to=True)),
            (DRAFT_CONFIG, "fc_norm and eagle_config.fc_norm", "found False and True", "expected one value"),
        ),
        Damage(
            "two norms before fc",
            _all(_set(DRAFT_CONFIG, "fc_norm", to=True), _set(DRAFT_CONFIG, "norm_before_fc", to=True)),
            (DRAFT_CONFIG, "norm_before_fc", "exclude each other", "expected"),
        ),
        Damage(
            "no boundary left by the engine",
            _all(_ids(3, 3, 3), _pair("[decode]", 'served_by = "sglang==0.5.23"\n[decode]')),
            (DRAFT_CONFIG, nested, "sglang==0.5.23 captures fewer states", "boundaries []", "expected [4, 4, 4]"),
        ),
        Damage(
            "no ids and no default",
            _all(_drop(DRAFT_CONFIG, *outer), _pair('"specforge"', '"boundary"')),
            (DRAFT_CONFIG, nested, "no default", "Next: write"),
        ),
    ]


def _weights() -> list[Damage]:
    damages = []
    norms = {TARGET_WEIGHTS: "model.norm.weight", DRAFT_WEIGHTS: "norm.weight"}
    wide = {TARGET_WEIGHTS: "model.layers.2.mlp.up_proj.weight", DRAFT_WEIGHTS: "midlayer.mlp.up_proj.weight"}
    for file, norm in norms.items():
        name, matrix = file.partition("/")[0], wide[file]
        damages += [
            Damage(
                f"{name} NaN",
                _tensor(file, matrix, _put(math.nan, (3, 5))),
                (file, matrix, "finite", "1 of 1536", "Next:"),
            ),
            Damage(
                f"{name} inf", _tensor(file, norm, _put(-math.inf, (7,))), (file, norm, "finite", "1 of 32", "Next:")
            ),
            Damage(f"{name} tensor missing", _without(file, norm), (file, norm, "lack tensors")),
            Damage(
                f"{name} tensor unknown",
                _with(file, f"{norm}_scale", torch.ones(2)),
                (file, f"{norm}_scale", "no place for", "expected"),
            ),
            Damage(
                f"{name} tensor of another shape",
                _tensor(file, norm, lambda tensor: tensor[:-1].clone()),
                (norm, "[31]", "[32]"),
            ),
            Damage(
                f"{name} tensor transposed",
                _tensor(file, matrix, lambda tensor: tensor.T.contiguous()),
                (matrix, "[32, 48]", "[48, 32]"),
            ),
            Damage(
                f"{name} tensor of integers",
                _tensor(file, matrix, lambda tensor: tensor.to(torch.int32)),
                (file, matrix, "holds no weights", "I32" if file == TARGET_WEIGHTS else "torch.int32", "expected"),
            ),
            Damage(
                f"{name} tensor of complex numbers",
                _tensor(file, norm, lambda tensor: tensor.to(torch.complex64)),
                (file, norm, "holds no weights", "C64" if file == TARGET_WEIGHTS else "torch.complex64", "expected"),
            ),
        ]
    d2t = "d2t"
    damages += [
        Damage(
            "draft head missing", _without(DRAFT_WEIGHTS, "lm_head.weight"), (DRAFT_WEIGHTS, "lm_head.weight", "Next:")
        ),
        Damage("d2t missing", _without(DRAFT_WEIGHTS, d2t), (DRAFT_WEIGHTS, d2t, "lack tensors", "Next:")),
        Damage(
            "d2t above the vocabulary",
            _tensor(DRAFT_WEIGHTS, d2t, _put(60, (9,))),
            (DRAFT_WEIGHTS, "d2t[9]", "9 + 60 = 69", "0 to 63", "Next: d2t holds offsets"),
        ),
        Damage(
            "d2t below the vocabulary",
            _tensor(DRAFT_WEIGHTS, d2t, _put(-10, (9,))),
            (DRAFT_WEIGHTS, "d2t[9]", "9 + -10 = -1", "0 to 63", "Next: d2t holds offsets"),
        ),
        Damage(
            "d2t of the greatest integer",
            _tensor(DRAFT_WEIGHTS, d2t, _put(2**63 - 1, (9,))),
            (DRAFT_WEIGHTS, "d2t[9]", "0 to 63"),
        ),
        Damage(
            "d2t of floats",
            _tensor(DRAFT_WEIGHTS, d2t, lambda tensor: tensor.float()),
            (DRAFT_WEIGHTS, d2t, "found torch.float32", "expected int64"),
        ),
        Damage(
            "d2t of complex numbers",
            _tensor(DRAFT_WEIGHTS, d2t, lambda tensor: tensor.to(torch.complex64)),
            (DRAFT_WEIGHTS, d2t, "found torch.complex64", "expected int64"),
        ),
        Damage(
            "d2t short",
            _tensor(DRAFT_WEIGHTS, d2t, lambda tensor: tensor[:-1].clone()),
            (DRAFT_WEIGHTS, d2t, "found [39]", "expected [40]"),
        ),
        Damage(
            "t2d of bytes",
            _tensor(DRAFT_WEIGHTS, "t2d", lambda tensor: tensor.to(torch.uint8)),
            (DRAFT_WEIGHTS, "t2d", "found torch.uint8", "expected bool"),
        ),
        Damage(
            "t2d of eight-bit floats",
            _tensor(DRAFT_WEIGHTS, "t2d", lambda tensor: tensor.to(torch.float8_e4m3fn)),
            (DRAFT_WEIGHTS, "t2d", "found torch.float8_e4m3fn", "expected bool"),
        ),
        Damage(
            "t2d long",
            _with(DRAFT_WEIGHTS, "t2d", torch.ones(65, dtype=torch.bool)),
            (DRAFT_WEIGHTS, "t2d", "found [65]", "expected [64]"),
        ),
        Damage(
            "draft tensor under two names",
            _with(DRAFT_WEIGHTS, "layers.0.hidden_norm.weight", torch.ones(WIDTH)),
            (DRAFT_WEIGHTS, "midlayer.hidden_norm.weight", "layers.0.hidden_norm.weight", "expected one"),
        ),
        Damage(
            "fc of two states",
            _tensor(DRAFT_WEIGHTS, "fc.weight", lambda tensor: tensor[:, :64].clone()),
            (DRAFT_WEIGHTS, "fc.weight", "found [32, 64]", "[32, 96]", "3 boundaries"),
        ),
        Damage(
            "fc of four states",
            _tensor(DRAFT_WEIGHTS, "fc.weight", lambda tensor: torch.cat((tensor, tensor[:, :32]), 1)),
            (DRAFT_WEIGHTS, "fc.weight", "found [32, 128]", "[32, 96]", "3 boundaries"),
        ),
        Damage(
            "draft of a target half as wide",
            _tensor(DRAFT_WEIGHTS, "fc.weight", lambda tensor: tensor[:, :48].clone()),
            (DRAFT_WEIGHTS, "fc.weight", "found [32, 48]", "[32, 96]"),
        ),
    ]
    return damages


def _another_target(**changes: Any) -> Callable[[Path], object]:
    def apply(root: Path) -> None:
        shutil.rmtree(root / "target")
        write_target(root / "target", **changes)

    return apply


def _goldens() -> list[Damage]:
    def bad(name: str, apply: Callable[[Path], object], *says: str) -> Damage:
        return Damage(f"golden {name}", apply, (GOLDEN, *says))

    def edit(name: str, *keys: str | int, to: Any, says: tuple[str, ...]) -> Damage:
        return bad(name, _set(GOLDEN, *keys, to=to), *says, "Next:")

    def arrays(name: str, change: Callable[[dict[str, Any]], object], *says: str) -> Damage:
        return Damage(f"golden {name}", _arrays(change), (".safetensors", "not usable", *says, "Next: restore"))

    def totals(key: str, value: Any) -> Damage:
        says = (f"totals.{key} is {value}", "the prompts' counts give")
        return edit(f"totals.{key} changed", "totals", key, to=value, says=says)

    first = ("prompts", 0)
    return [
        Damage(
            "golden of another pair",
            _all(_pair('"random"', '"other"'), lambda root: (root / "golden/random").rename(root / "golden/other")),
            ("golden/other", "pair", "found random", "expected other", "Next:"),
        ),
        edit("of another vocabulary", "target", "vocab_size", to=128, says=("target.vocab_size", "found 128", "64")),
        edit("of another hidden size", "target", "hidden_size", to=64, says=("target.hidden_size", "found 64", "32")),
        edit("of other layers", "target", "num_layers", to=8, says=("target.num_layers", "found 8", "expected 4")),
        edit(
            "of another architecture",
            "target",
            "architecture",
            to="Qwen2ForCausalLM",
            says=("target.architecture", "found Qwen2ForCausalLM", "expected LlamaForCausalLM"),
        ),
        bad("of a shallower target", _another_target(layers=5), "target.num_layers", "found 4", "expected 5", "Next:"),
        bad(
            "with other steps",
            _pair("num_steps = 4", "num_steps = 3"),
            "decode.num_steps",
            "found 4",
            "expected 3",
            PAIR,
            "Next:",
        ),
        bad("with other lengths", _pair("= 24", "= 25"), "decode.max_new_tokens", "found 24", "expected 25", "Next:"),
        edit("of a future schema", "schema_version", to=2, says=("schema_version", "found 2", "expected 1")),
        edit("of a schema in words", "schema_version", to="1", says=("schema_version", "found '1'", "expected 1")),
        bad("of no schema", _drop(GOLDEN, "schema_version"), "schema_version", "found None", "expected 1", "Next:"),
        edit("with an unknown key", "flor", to=1, says=("flor", "not usable")),
        bad("with a key missing", _drop(GOLDEN, "totals"), "totals", "not usable", "Next:"),
        edit("with a count in words", *first, "tokens", to="3", says=("prompts.0.tokens", "integer")),
        edit("with a negative count", *first, "histogram", 0, to=-1, says=("prompts.0.histogram.0",)),
        edit("with a count of 400 digits", *first, "histogram", 0, to=10**400, says=("prompts.0.histogram.0",)),
        edit("with floor 2", "floor", to=2.0, says=("floor",)),
        edit("with floor NaN", "floor", to=math.nan, says=("floor",)),
        edit("with rate NaN", "totals", "rate", to=math.nan, says=("totals.rate",)),
        edit("without noise", "noise", to={}, says=("noise.float32", "found noise of nothing")),
        edit("with noise NaN", "noise", "float32", "likelihood", to=math.nan, says=("noise.float32.likelihood",)),
        edit("with more noise than blocks", "noise", "float32", "changed", to=10**6, says=("noise.float32", "1000000")),
        edit("with a floor above its rate", "floor", to=0.5, says=("floor 0.5", "rate")),
        totals("prompts", 7),
        totals("rounds", 106),
        totals("accepted", 37),
        totals("proposed", 421),
        totals("rate", 0.5),
        totals("length", 2.5),
        edit("with a histogram entry changed", *first, "histogram", 0, to=17, says=("totals.rounds is 105", "106")),
        edit(
            "with two histogram entries swapped",
            *first,
            "histogram",
            to=[16, 0, 1, 0, 1],
            says=("totals.accepted is 36", "37"),
        ),
        edit("with a short histogram", *first, "histogram", to=[16, 1], says=("'p0'", "4 entries in hits", "not 1")),
        bad(
            "with counts of fewer steps",
            _all(
                _set(GOLDEN, *first, "histogram", to=[16, 1]),
                _set(GOLDEN, *first, "hits", to=[2]),
                _set(GOLDEN, *first, "positions", to=[23]),
            ),
            "'p0' has 2 entries in histogram, not 5",
            "Next:",
        ),
        edit("with short hits", *first, "hits", to=[2], says=("'p0'", "1 entries in hits", "4")),
        edit("with more hits than positions", *first, "hits", 0, to=24, says=("'p0'", "hits", "24", "23")),
        edit("with an impossible last round", *first, "eos_round", to=[4, 5], says=("'p0'", "eos_round", "5")),
        bad(
            "with a prompt twice",
            _json(GOLDEN, lambda body: body["prompts"].append(body["prompts"][0])),
            "'p0' stands twice",
            "Next:",
        ),
        bad("without prompts", _set(GOLDEN, "prompts", to=[]), "Next:"),
        edit("with unknown settings", "decode", "beam", to=2, says=("decode",)),
        edit("with a setting of 400 digits", "decode", "temperature", to=10**400, says=("decode",)),
        edit("with impossible settings", "decode", "num_steps", to=0, says=("decode",)),
        bad("without a setting", _drop(GOLDEN, "decode", "topk"), "decode", "Next:"),
        edit("naming no tensors", "tensors", to="../../draft/model.safetensors", says=("tensors",)),
        edit(
            "of another dtype than its name",
            "dtype",
            to="bfloat16",
            says=("dtype", "found reference-cpu-bfloat16", "expected"),
        ),
        edit("nested steeply", "versions", to=json.loads("[" * _STEEP + "]" * _STEEP), says=("Next:",)),
        Damage(
            "golden with a shorter output",
            _set(GOLDEN, *first, "output", to=27),
            (".safetensors", "texts", "Next: restore"),
        ),
        Damage(
            "golden with outputs shifted",
            _all(_set(GOLDEN, "prompts", 0, "output", to=20), _set(GOLDEN, "prompts", 1, "output", to=36)),
            (".safetensors", "Next: restore"),
        ),
        arrays("tensors without starts", lambda body: body.pop("starts"), "starts"),
        arrays("tensors with a lone start", lambda body: body.update(starts=np.array(23, np.int32)), "starts"),
        arrays("tensors with a start too many", lambda body: body.update(starts=np.ones(7, np.int32)), "starts"),
        arrays("tensors with starts in halves", lambda body: body.update(starts=body["starts"] + 0.5), "starts"),
        arrays("tensors with negative starts", lambda body: body.update(starts=-body["starts"]), "starts"),
        arrays("tensors with few proposals", lambda body: body.update(proposals=body["proposals"][:-1]), "proposals"),
        arrays(
            "tensors with narrow proposals",
            lambda body: body.update(proposals=np.ascontiguousarray(body["proposals"][:, :3])),
            "proposals",
        ),
        arrays(
            "tensors with flat logprobs", lambda body: body.update(logprobs=body["logprobs"][:, 0].copy()), "logprobs"
        ),
        arrays("tensors with a text of floats", lambda body: body.update(texts=body["texts"] + 0.5), "texts"),
        arrays("tensors with a token too high", lambda body: body["texts"].__setitem__(3, VOCAB), "texts", "64"),
        arrays("tensors with a token below 0", lambda body: body["texts"].__setitem__(3, -1), "texts", "-1"),
        arrays("tensors with a short text", lambda body: body.update(texts=body["texts"][:-1]), "texts"),
        arrays("tensors with inf", lambda body: body["logprobs"].__setitem__((0, 0), math.inf), "logprobs"),
        Damage(
            "golden's name taken by a folder",
            _into_folder(GOLDEN),
            (GOLDEN, "cannot be read", "Next:"),
            ("record", "PAIR", "--reason", "new"),
        ),
        Damage(
            "golden damaged and recorded over",
            _set(GOLDEN, "totals", "rounds", to=1),
            (GOLDEN, "totals.rounds is 1", "Next:"),
            ("record", "PAIR", "--reason", "new"),
        ),
        Damage(
            "golden folder a file when recording",
            _into_file("golden/random"),
            ("golden/random", "cannot be written", "Next: make it writable"),
            ("record", "PAIR"),
        ),
        Damage(
            "golden key a file when recording",
            _pair("[decode]", 'golden = "prompts.jsonl"\n[decode]'),
            ("prompts.jsonl/random", "cannot be written", "Next: make it writable"),
            ("record", "PAIR"),
        ),
        Damage(
            "golden key of 5,000 letters",
            _pair("[decode]", f'golden = "{"g" * 5000}"\n[decode]'),
            ("gggg", "cannot be written", "Next: make it writable"),
            ("record", "PAIR"),
        ),
        Damage(
            "golden key with a NUL",
            _pair("[decode]", 'golden = "a\\u0000b"\n[decode]'),
            (PAIR, "golden", "expected"),
            ("record", "PAIR"),
        ),
        Damage(
            "golden key of an unknown user",
            _pair("[decode]", 'golden = "~nobody-at-all/g"\n[decode]'),
            (PAIR, "golden", "~nobody-at-all", "expected"),
        ),
    ]


def _prompt_lines() -> list[Damage]:
    def bad(name: str, number: int, text: str, *says: str) -> Damage:
        return Damage(f"prompt {name}", _line(number, text), (PROMPTS, f"line {number}", *says))

    def text(name: str, line: dict[str, Any], *says: str, template: str | None = "{{ messages }}") -> Damage:
        """Return a prompt that needs the tokenizer."""
        changes = (
            lambda root: add_tokenizer(root, template=template),
            _pair('chat_template = "none"\n', ""),
            _prompts(lambda lines: lines.append({"id": "x", **line})),
        )
        return Damage(f"prompt {name}", _all(*changes), says, ("measure", "PAIR"))

    words = {"messages": [{"role": "user", "content": "w1 w2"}]}
    return [
        bad("line broken", 2, '{"id": "p1", "text": "a"', "not valid JSON", "expected"),
        bad("line a list", 2, "[1, 2]", "no JSON object", "found list", "expected"),
        bad("line a number", 3, "7", "no JSON object", "found int", "expected"),
        bad("line nested deeply", 2, "[" * _DEEP, "not valid JSON", "expected"),
        bad("line with a number of 5,000 digits", 2, '{"id": ' + "9" * 5000 + "}", "not valid JSON", "expected"),
        bad("line with a repeated key", 2, '{"id": "a", "id": "b", "text": "a"}', "'id' stands twice", "expected"),
        bad("line without an id", 2, '{"text": "a"}', "id", "expected"),
        bad("id empty", 2, '{"id": "", "text": "a"}', "id", "found ''", "expected"),
        bad("id a number", 2, '{"id": 7, "text": "a"}', "id", "found 7", "expected", "string"),
        bad("id used twice", 4, '{"id": "p0", "token_ids": [1]}', "used twice", "found p0", "line 1"),
        bad("key unknown", 2, '{"id": "p1", "txt": "a"}', "txt", "found 'a'", "expected"),
        bad(
            "of two forms", 2, '{"id": "p1", "text": "a", "token_ids": [1]}', "found text and token_ids", "expected one"
        ),
        bad("of no form", 2, '{"id": "p1"}', "found none", "expected one of text"),
        bad("of a null form", 2, '{"id": "p1", "text": null}', "found none", "expected one of text"),
        bad("text empty", 2, '{"id": "p1", "text": ""}', "text", "empty", "expected"),
        bad("text blank", 2, '{"id": "p1", "text": " \\n "}', "text", "empty", "expected"),
        bad("messages empty", 2, '{"id": "p1", "messages": []}', "messages", "empty", "expected"),
        bad("tokens empty", 2, '{"id": "p1", "token_ids": []}', "token_ids", "empty", "expected"),
        bad("message without a role", 2, '{"id": "p1", "messages": [{"content": "a"}]}', "messages.0.role", "expected"),
        bad("token a text", 2, '{"id": "p1", "token_ids": ["1"]}', "token_ids.0", "found '1'", "integer"),
        bad("token a float", 2, '{"id": "p1", "token_ids": [1.5]}', "token_ids.0", "found 1.5", "integer"),
        bad("token negative", 2, '{"id": "p1", "token_ids": [1, -1]}', "token_ids.1", "found -1", "equal to 0"),
        bad("text a lone surrogate", 2, '{"id": "p1", "text": "\\ud800"}', "text", "expected"),
        Damage(
            "prompt token outside the vocabulary",
            _prompts(lambda lines: lines[1]["token_ids"].append(VOCAB)),
            (PROMPTS, "'p1'", "found 64", "expected ids below 64", "Next:"),
        ),
        Damage(
            "prompt token of 400 digits",
            _prompts(lambda lines: lines[1]["token_ids"].append(10**400)),
            (PROMPTS, "'p1'", "found 1000", "expected ids below 64", "Next:"),
        ),
        Damage(
            "prompt too long",
            _prompts(lambda lines: lines[1].update(token_ids=[1] * 500)),
            (PROMPTS, "'p1'", "found 500 tokens", "at most 484", "Next: shorten"),
        ),
        Damage(
            "prompt altered",
            _prompts(lambda lines: lines[3]["token_ids"].__setitem__(2, (lines[3]["token_ids"][2] + 1) % VOCAB)),
            (PROMPTS, "'p3'", "not the one that was recorded", "found tokens", GOLDEN, "Next: restore"),
        ),
        Damage(
            "prompt removed", _prompts(lambda lines: lines.pop(2)), (PROMPTS, "found no 'p2'", GOLDEN, "Next: restore")
        ),
        Damage(
            "prompt added",
            _prompts(lambda lines: lines.append({"id": "new", "token_ids": [1]})),
            (GOLDEN, "found no 'new'", PROMPTS, "Next: record it again"),
        ),
        Damage(
            "prompts renamed",
            _prompts(lambda lines: [line.update(id=f"q{line['id']}") for line in lines]),
            (GOLDEN, "found no 'qp0'", PROMPTS, "Next: record it again"),
        ),
        Damage(
            "prompt text and no tokenizer",
            _line(2, '{"id": "p1", "text": "a"}'),
            ("target", "tokenizer cannot be loaded", "expected tokenizer.json"),
        ),
        Damage(
            "prompt messages and no template",
            _line(2, '{"id": "p1", "messages": [{"role": "user", "content": "a"}]}'),
            (PROMPTS, "'p1'", "chat template", "Next: set chat_template"),
        ),
        text(
            "messages and a tokenizer without a template", words, "target", "no chat template", "Next:", template=None
        ),
        text("messages and a broken template", words, "chat template", "'x'", "expected", template="{% for %}"),
        text("messages and a template that raises", words, "chat template", "'x'", "x", template="{{ 1 / 0 }}"),
        text("messages and a template that gives nothing", words, PROMPTS, "'x'", "no tokens", template=" "),
        text(
            "message with a lone surrogate",
            {"messages": [{"role": "user", "content": "\ud800"}]},
            "'x'",
            "expected",
            template="{{ messages[0].content }}",
        ),
        Damage(
            "prompt text and a broken tokenizer",
            _all(
                lambda root: add_tokenizer(root, template="x"),
                _write("target/tokenizer.json", b'{"version": "1.0", "model": 7}'),
                _line(2, '{"id": "p1", "text": "a"}'),
            ),
            ("target", "tokenizer cannot be loaded", "expected tokenizer.json"),
        ),
    ]


def _other_commands() -> list[Damage]:
    """Return damage seen by commands that read what other commands wrote."""
    result, first = "result.json", ("prompts", 0)

    def bad(name: str, apply: Callable[[Path], object], *says: str) -> Damage:
        return Damage(f"result {name}", apply, (result, *says), ("compare", "RESULT", "PAIR"))

    def golden(name: str, apply: Callable[[Path], object], command: str, *says: str) -> Damage:
        others = ("PAIR",) if command == "diff" else ()
        return Damage(f"golden {command}, {name}", apply, says, ("golden", command, "PAIR", *others))

    return [
        *(
            Damage(damage.name, damage.apply, damage.says, ("compare", "RESULT", "PAIR"))
            for damage in _broken_json(result, "result", "Next: write one with harness measure")
        ),
        bad("of something else", _write(result, b'{"pair": "random"}'), "engine", "required", "expected what harness"),
        bad("without prompts", _set(result, "prompts", to=[]), "prompts", "at least 1", "expected what harness"),
        bad("with a count in words", _set(result, *first, "histogram", 0, to="1"), "prompts.0.histogram.0", "integer"),
        bad(
            "with a negative count", _set(result, *first, "histogram", 0, to=-1), "prompts.0.histogram.0", "equal to 0"
        ),
        bad("with a count of 400 digits", _set(result, *first, "histogram", 0, to=10**400), "prompts.0.histogram.0"),
        bad("with an empty histogram", _set(result, *first, "histogram", to=[]), "prompts.0.histogram", "at least 2"),
        bad("with short hits", _set(result, *first, "hits", to=[2]), "prompts.0", "'p0' has 1 entries in hits, not 4"),
        bad("with more hits than positions", _set(result, *first, "hits", 0, to=24), "'p0' has 24 hits at 23"),
        bad("with hits alone", _set(result, *first, "positions", to=None), "'p0' has 0 entries in positions"),
        bad("with a prompt twice", _json(result, lambda body: body["prompts"].append(body["prompts"][0])), "'p0'"),
        Damage(
            "result of other prompts",
            _json(result, lambda body: [row.update(id="q" + row["id"]) for row in body["prompts"]]),
            ("random", "no prompt in common", "expected"),
            ("compare", "RESULT", "PAIR"),
        ),
        Damage(
            "result of altered prompts",
            _set(result, *first, "hash", to="0" * 16),
            ("'p0'", "different prompts under one id", "found 0000000000000000 and", "expected"),
            ("compare", "RESULT", "PAIR"),
        ),
        Damage(
            "result of other chains",
            _json(
                result,
                lambda body: [row.update(histogram=[1, 1], hits=None, positions=None) for row in body["prompts"]],
            ),
            ("num_steps", "different chain lengths", "found 1 and 4", "expected"),
            ("compare", "RESULT", "PAIR"),
        ),
        golden("missing", _remove(GOLDEN), "show", "golden/random", "has no golden", "Next: harness record"),
        golden("missing", _remove(GOLDEN), "verify", "golden/random", "has no golden", "Next: harness record"),
        golden("damaged", _set(GOLDEN, "totals", "rounds", to=1), "show", GOLDEN, "totals.rounds is 1", "Next:"),
        golden("damaged", _set(GOLDEN, "totals", "rounds", to=1), "diff", GOLDEN, "totals.rounds is 1", "Next:"),
        Damage(
            "golden file that is none",
            lambda _: None,
            ("nowhere.json", "does not exist", "Next:"),
            ("golden", "show", "nowhere.json"),
        ),
    ]


DAMAGES = [
    *_missing_and_corrupt(),
    *_pair_keys(),
    *_options(),
    *_configs(),
    *_weights(),
    *_goldens(),
    *_prompt_lines(),
    *_other_commands(),
]
