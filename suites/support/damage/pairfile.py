"""Damage to the pair file."""

from __future__ import annotations

from suites.support.damage.editing import DEEP, PAIR, Damage, into_folder, pair_text, prepend, remove, truncate, write


def _bad(name: str, old: str, new: str, *says: str) -> Damage:
    """Return a pair file with one text in the place of another."""
    return Damage(name, pair_text(old, new), (PAIR, *says))


_STEPS, _FLOOR = "num_steps = 4", "floor = 0.0"

_WHOLE = [
    Damage("pair file missing", remove(PAIR), (PAIR, "no such pair file", "expected a path to a .pair.toml")),
    Damage("pair file is a folder", into_folder(PAIR), (PAIR, "no such pair file", "expected")),
    Damage("pair file empty", write(PAIR, b""), (PAIR, "name", "missing", "Next: add name")),
    Damage("pair file garbage", write(PAIR, b"\x00\x01garbage"), (PAIR, "not valid TOML", "expected")),
    Damage("pair file truncated", truncate(PAIR), (PAIR,)),
    Damage("pair file in latin-1", prepend(PAIR, "# caf\xe9\n".encode("latin-1")), (PAIR, "0xe9", "UTF-8")),
    Damage("pair file with a BOM", prepend(PAIR, b"\xef\xbb\xbf"), (PAIR, "byte order mark", "UTF-8")),
    Damage("pair file nested deeply", prepend(PAIR, b"x = " + b"[" * DEEP + b"\n"), (PAIR, "TOML", "expected")),
]

_NAMES = [
    _bad("unknown key", "[decode]", "treshold = 1\n[decode]", "treshold: unknown key", "expected one of", "target"),
    _bad("name missing", 'name = "random"', "", "name: the key is missing", "Next: add name"),
    _bad("target missing in the pair file", 'target = "target"', "", "target: the key is missing", "Next: add target"),
    _bad("name of a wrong type", '"random"', "7", "name", "found 7", "expected", "string"),
    _bad("name with a slash", '"random"', '"a/b"', "name", "found 'a/b'", "expected"),
    _bad("name of 5,000 letters", '"random"', f'"{"n" * 5000}"', "name", "found 'nnn", "expected"),
    _bad("prompts of a wrong type", '"prompts.jsonl"', "[1]", "prompts", "found [1]", "expected", "string"),
    _bad("prompts empty in the pair file", '"prompts.jsonl"', '""', "prompts", "found ''", "expected"),
    _bad("prompts with a NUL", '"prompts.jsonl"', '"a\\u0000b"', "prompts", "expected"),
    Damage(
        "prompts of 5,000 letters",
        pair_text('"prompts.jsonl"', f'"{"p" * 5000}"'),
        ("ppp: the prompts file cannot be read", "too long", "expected"),
    ),
    _bad(
        "prompts of an unknown user",
        '"prompts.jsonl"',
        '"~nobody-at-all/p"',
        "prompts",
        "~nobody-at-all",
        "expected",
    ),
    _bad("target of 5,000 letters", '"target"', f'"{"t" * 5000}"', "target", "is not a checkpoint folder", "expected"),
    _bad("target of an unknown user", '"target"', '"~nobody-at-all/t"', "target", "~nobody-at-all", "expected"),
    _bad("target nowhere", '"target"', '"nowhere/target"', "target", "found nowhere/target", "hub id", "Next:"),
    _bad("draft a wrong hub id", '"draft"', '"no such/id"', "draft", "found no such/id", "hub id", "Next:"),
]

_DECODE = [
    _bad("unknown key in decode", _STEPS, "num_step = 4", "decode.num_step: unknown key", "num_steps"),
    _bad("decode is no section", "[decode]", "decode = 4\n[x]", "decode", "found 4", "expected"),
    _bad("steps of a wrong type", _STEPS, 'num_steps = "4"', "decode.num_steps", "found '4'", "integer"),
    _bad("steps a float", _STEPS, "num_steps = 4.0", "decode.num_steps", "found 4.0", "integer"),
    _bad("steps true", _STEPS, "num_steps = true", "decode.num_steps", "found True", "integer"),
    _bad("no steps", _STEPS, "num_steps = 0", "decode.num_steps", "found 0", "greater than or equal to 1"),
    _bad("steps a date", _STEPS, "num_steps = 1979-05-27", "decode.num_steps", "found datetime.date", "integer"),
    _bad("steps of 5,000 digits", _STEPS, f"num_steps = {'9' * 5000}", "not valid TOML", "expected"),
    _bad("steps of 5,000 hex digits", _STEPS, f"num_steps = 0x{'f' * 5000}", "decode.num_steps", "expected"),
    _bad(
        "draft tokens that do not fit",
        _STEPS,
        f"{_STEPS}\nnum_draft_tokens = 4",
        "decode",
        "num_draft_tokens = 4 does not fit num_steps = 4",
        "= 5 tokens",
    ),
    _bad("a tree", _STEPS, f"{_STEPS}\ntopk = 4\nnum_draft_tokens = 8", "decode.topk", "found 4", "expected 1"),
    _bad("sampling", _STEPS, f"{_STEPS}\ntemperature = 0.7", "decode.temperature", "found 0.7", "expected 0.0"),
    _bad("temperature of 400 digits", _STEPS, f"{_STEPS}\ntemperature = {10**400}", "decode.temperature", "found 1000"),
    _bad("temperature nan", _STEPS, f"{_STEPS}\ntemperature = nan", "decode.temperature", "found nan", "expected"),
    _bad("no new tokens", "max_new_tokens = 24", "max_new_tokens = 0", "decode.max_new_tokens", "found 0", "expected"),
    _bad(
        "more new tokens than positions",
        "max_new_tokens = 24",
        "max_new_tokens = 600",
        "decode.max_new_tokens",
        "found 600",
        "max_position_embeddings = 512",
    ),
]

_GATE_AND_ENGINE = [
    _bad("unknown key in gate", _FLOOR, "flor = 0.0", "gate.flor: unknown key", "margin"),
    _bad("unknown key in engine", "[decode]", "[engine]\nnam = 1\n[decode]", "engine.nam: unknown key", "dtype"),
    _bad("floor above one", _FLOOR, "floor = 1.5", "gate.floor", "found 1.5", "less than or equal to 1"),
    _bad("floor nan", _FLOOR, "floor = nan", "gate.floor", "found nan", "expected"),
    _bad("floor of a wrong type", _FLOOR, 'floor = "0.7"', "gate.floor", "found '0.7'", "number"),
    _bad("margin inf", _FLOOR, f"{_FLOOR}\nmargin = inf", "gate.margin", "found inf", "expected"),
    _bad("strict of a wrong type", _FLOOR, f"{_FLOOR}\nstrict = 1", "gate.strict", "found 1", "boolean"),
    _bad("alpha too small", _FLOOR, f"{_FLOOR}\nalpha = 1e-13", "gate.alpha", "found 1e-13", "1e-12"),
    _bad("dtype unknown", "[decode]", '[engine]\ndtype = "int8"\n[decode]', "engine.dtype", "found 'int8'", "float32"),
    _bad("engine unknown", "[decode]", '[engine]\nname = "trtllm"\n[decode]', "engine.name", "trtllm", "reference"),
    _bad("device unknown", "[decode]", '[engine]\ndevice = "abacus"\n[decode]', "engine.device", "abacus", "cpu"),
    _bad("device meta", "[decode]", '[engine]\ndevice = "meta"\n[decode]', "engine.device", "meta", "expected cpu"),
    _bad("device absent", "[decode]", '[engine]\ndevice = "cuda:63"\n[decode]', "engine.device", "cuda:63", "cpu"),
    _bad("trained_as missing", 'trained_as = "specforge"', "", "trained_as", "expected specforge", "Next:"),
    _bad("trained_as unknown", '"specforge"', '"megatron"', "trained_as", "found megatron", "expected", "specforge"),
    _bad("trained_as with a version", '"specforge"', '"eagle==1"', "trained_as", "found eagle==1", "expected eagle"),
    _bad(
        "served_by unknown",
        "[decode]",
        'served_by = "tgi"\n[decode]',
        "served_by",
        "found tgi",
        "expected",
        "sglang",
    ),
]


def _engine(name: str, lines: str, *says: str) -> Damage:
    return _bad(name, "[decode]", f"[engine]\n{lines}\n[decode]", *says)


_SERVER = [
    _engine(
        "a server without an address",
        'name = "server"',
        "engine.endpoint",
        "the address of a running server",
        "http://host:port",
    ),
    _engine("an address of a wrong type", "endpoint = 30000", "engine.endpoint", "found 30000", "string"),
    _engine("an address that is none", 'endpoint = "localhost"', "engine.endpoint", "localhost", "expected", "http://"),
    _engine("an address of a file", 'endpoint = "file:///x"', "engine.endpoint", "file:///x", "expected", "http://"),
    _engine(
        "an address with a password",
        'endpoint = "http://user:secret@127.0.0.1:9"',
        "engine.endpoint",
        "HARNESS_API_KEY",
    ),
    _engine("no requests at once", 'endpoint = "http://127.0.0.1:9"\nconcurrency = 0', "engine.concurrency", "found 0"),
    _engine("requests at once by words", 'concurrency = "many"', "engine.concurrency", "found 'many'", "integer"),
    _engine("unknown key in timeouts", "timeouts = { conect = 1 }", "engine.timeouts.conect: unknown key", "connect"),
    _engine("a timeout below zero", "timeouts = { connect = -1 }", "engine.timeouts.connect", "found -1", "greater"),
    _engine("a timeout that is no number", "timeouts = { connect = nan }", "engine.timeouts.connect", "found nan"),
    _engine("timeouts of a wrong type", "timeouts = 3", "engine.timeouts", "found 3", "expected"),
]

_SYNTAX = [
    _bad("key with a line break", "[decode]", '"a\\nb" = 1\n[decode]', "unknown key", "expected one of"),
    _bad("broken line", "[decode]", "[decode", "not valid TOML", "line 8", "expected"),
    _bad("key twice", "[decode]", 'name = "b"\n[decode]', "not valid TOML", "line", "expected"),
    _bad("nested steeply", "[decode]", f"[engine]\nx = {'[' * 300}{']' * 300}\n[decode]", "engine.x", "unknown key"),
    _bad(
        "chat template missing",
        'chat_template = "none"',
        'chat_template = "chat.jinja"',
        "chat_template",
        "chat.jinja",
        "does not exist",
        "expected target, none",
    ),
]

PAIR_FILE = [*_WHOLE, *_NAMES, *_DECODE, *_GATE_AND_ENGINE, *_SERVER, *_SYNTAX]
