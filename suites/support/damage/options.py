"""Commands with arguments that cannot be."""

from __future__ import annotations

from suites.support.damage.editing import GOLDEN, PROMPTS, Damage, set_value


def _bad(name: str, options: tuple[str, ...], *says: str) -> Damage:
    return Damage(name, lambda _: None, says, options)


OPTIONS = [
    _bad("no such built-in pair", ("check", "tinny"), "tinny", "no such pair file", "expected a path"),
    _bad("name with a NUL", ("check", "a\0b"), "no such pair file", "expected a path"),
    _bad("name too long", ("check", "a" * 5000), "no such pair file", "expected a path"),
    _bad("engine option", ("check", "PAIR", "--engine", "vllm"), "--engine", "vllm", "reference"),
    _bad("dtype option", ("check", "PAIR", "--dtype", "float31"), "--dtype", "float31", "float32"),
    _bad("device option", ("measure", "PAIR", "--device", "abacus"), "--device", "abacus", "expected cpu"),
    _bad("empty device option", ("measure", "PAIR", "--device", ""), "--device", "nothing", "expected cpu"),
    _bad("device option a path", ("record", "PAIR", "--device", "../../x"), "--device", "../../x", "expected cpu"),
    _bad("k option zero", ("measure", "PAIR", "--k", "0"), "--k", "Next: see --help"),
    _bad("k option a word", ("measure", "PAIR", "--k", "four"), "--k", "Next: see --help"),
    _bad("unknown option", ("measure", "PAIR", "--kk", "4"), "--kk", "Next: see --help"),
    _bad("unknown command", ("mesure", "PAIR"), "mesure", "Next: see --help"),
    _bad("no pair named", ("measure",), "PAIR", "Next: see --help"),
    _bad("no prompt of that id", ("measure", "PAIR", "--prompts", "p9"), PROMPTS, "--prompts", "p9", "expected"),
    _bad("no prompts asked for", ("measure", "PAIR", "--prompts", "0"), PROMPTS, "--prompts", "found 0", "1 to 6"),
    _bad("too many prompts", ("measure", "PAIR", "--prompts", "7"), PROMPTS, "--prompts", "found 7", "1 to 6"),
    _bad("5,000 digits", ("measure", "PAIR", "--prompts", "9" * 5000), PROMPTS, "--prompts", "found 999", "1 to 6"),
    _bad("empty selection", ("measure", "PAIR", "--prompts", ""), PROMPTS, "--prompts", "found nothing", "expected"),
    _bad(
        "record without a reason",
        ("record", "PAIR"),
        GOLDEN,
        "--reason",
        "already recorded",
        "Next: harness record",
    ),
    _bad("record with a blank reason", ("record", "PAIR", "--reason", " "), GOLDEN, "--reason", "expected the reason"),
    _bad("k of another golden", ("check", "PAIR", "--k", "2"), GOLDEN, "decode.num_steps", "found 4", "expected 2"),
    Damage(
        "record that lowers the floor",
        set_value(GOLDEN, "floor", to=0.05),
        (GOLDEN, "--reason", "lowered from 0.05 to 0.0", "Next: harness record"),
        ("record", "PAIR"),
    ),
]
