"""`harness translate`."""

from __future__ import annotations

import pytest

from suites.support.command import Command

KIMI = ("--arch", "DeepseekV3ForCausalLM", "--layers", "61")
LLAMA = ("--arch", "LlamaForCausalLM", "--layers", "32")


@pytest.mark.parametrize(
    ("options", "ids", "boundaries"),
    [
        (("--from", "sglang==0.5.23", *KIMI), "2 30 58", [2, 30, 58]),
        (("--from", "sglang==0.5.12", *KIMI), "2 30 58", [3, 31, 59]),
        (("--from", "sglang-sentinel", *KIMI), "-1 2 30", [0, 3, 31]),
        (("--from", "sglang", *LLAMA), "1 15 28", [2, 16, 29]),
        (("--from", "specforge", *KIMI), "1 29 57", [2, 30, 58]),
    ],
)
def test_ids_become_boundaries(options: tuple[str, ...], ids: str, boundaries: list[int], harness: Command) -> None:
    outcome = harness("translate", *options, "--json", "--", *ids.split())
    assert outcome.status == 0
    assert outcome.json["boundaries"] == boundaries
    assert outcome.json["from"]["source"]


def test_ids_of_one_convention_in_another(harness: Command) -> None:
    options = ("--from", "specforge", "--to", "sglang==0.5.23", *KIMI)
    assert harness("translate", *options, "--json", "1", "29", "57").json["to"]["ids"] == [2, 30, 58]
    text = harness("translate", *options, "1", "29", "57").out
    assert "boundaries [2, 30, 58] of 61 blocks" in text
    assert "ids [2, 30, 58] as sglang==0.5.23" in text


def test_an_engine_without_version_is_the_newest_known_and_that_is_said(harness: Command) -> None:
    outcome = harness("translate", "--from", "sglang", *KIMI, "2", "30", "58")
    assert "sglang alone means the newest known, sglang==0.5.23" in " ".join(outcome.out.split())
    body = harness("translate", "--from", "sglang", *KIMI, "--json", "2", "30", "58").json
    assert body["boundaries"] == [2, 30, 58]
    assert body["assumed"] == {"sglang": "sglang==0.5.23"}


GEMMA = ("--from", "sglang==0.5.23", "--arch", "Gemma3ForCausalLM", "--layers", "26")


def test_boundaries_that_a_known_fault_loses_are_named_with_its_thread(harness: Command) -> None:
    """The embedding has no residual to lose: one boundary of three is captured."""
    outcome = harness("translate", *GEMMA, "--json", "--", "-1", "12", "22")
    assert outcome.status == 0
    body = outcome.json
    assert (body["boundaries"], body["lost"]) == ([0, 13, 23], [13, 23])
    assert body["from"]["captured"] == [0, None, None]
    assert body["from"]["fault"]["thread"] == "sglang#39286"
    assert (body["to"]["lost"], body["to"]["fault"]) == ([], None)
    assert "sglang#39286" in body["notes"][0]
    text = " ".join(harness("translate", *GEMMA, "--", "-1", "12", "22").out.split())
    assert "lost by sglang==0.5.23: boundaries [13, 23]; it captures [0, none, none]" in text
    assert "sglang#39286" in text


def test_the_convention_that_is_written_can_lose_them_as_well(harness: Command) -> None:
    options = ("--from", "boundary", "--to", *GEMMA[1:], "--json", "--", "0", "13", "23")
    body = harness("translate", *options).json
    assert (body["to"]["ids"], body["lost"]) == ([-1, 12, 22], [13, 23])
    assert (body["from"]["lost"], body["to"]["lost"]) == ([], [13, 23])


@pytest.mark.parametrize(
    ("options", "ids", "says"),
    [
        (GEMMA, "1 12 22", "sglang#39286"),
        (("--from", "specforge", "--to", *GEMMA[1:]), "1 12 22", "sglang#39286"),
        (
            ("--from", "sglang==0.5.21", "--arch", "Qwen3_5MoeForConditionalGeneration", "--layers", "60"),
            "-1 12 22",
            "captures nothing",
        ),
        (("--from", "transformers", *LLAMA), "32", "after the final norm"),
        (("--from", "sglang==0.5.12", *KIMI), "-1 2 30", "the embedding, which sglang==0.5.12 cannot capture"),
        (("--from", "sglang", *LLAMA), "28 1", "ascending order, each once"),
        (("--from", "sglang", *LLAMA), "1 31", "never reached"),
        (("--from", "specforge", "--to", "sglang", *LLAMA), "1 31", "cannot say these boundaries"),
        (("--from", "nobody", *LLAMA), "1", "unknown layer-id convention"),
        (
            ("--from", "sglang", "--arch", "Unknown", "--layers", "4"),
            "1",
            "reads layer ids of this target is not known",
        ),
        (("--from", "vllm", *LLAMA), "40", "does not stand for a hidden state"),
    ],
)
def test_what_cannot_be_said_is_refused(options: tuple[str, ...], ids: str, says: str, harness: Command) -> None:
    outcome = harness("translate", *options, "--", *ids.split())
    assert outcome.status == 2
    assert says in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "step"),
    [
        (["--from", "sglang", "--arch", "Foo", "--layers", "8", "3"], "Next: check the architecture's name"),
        (["--from", "vllm", "--layers", "8", "--", "1", "3", "99"], "Next: correct the ids, or name the convention"),
    ],
)
def test_the_next_step_is_one_that_a_command_line_has(arguments: list[str], step: str, harness: Command) -> None:
    outcome = harness("translate", *arguments)
    assert outcome.status == 2
    assert step in outcome.err
    assert "trained_as" not in outcome.err
