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


@pytest.mark.parametrize(
    ("options", "ids", "says"),
    [
        (("--from", "transformers", *LLAMA), "32", "after the final norm"),
        (("--from", "sglang==0.5.12", *KIMI), "-1 2 30", "the embedding, which sglang==0.5.12 cannot capture"),
        (("--from", "sglang", *LLAMA), "28 1", "ascending order, each once"),
        (("--from", "sglang", *LLAMA), "1 31", "never reached"),
        (("--from", "specforge", "--to", "sglang", *LLAMA), "1 31", "cannot say these boundaries"),
        (("--from", "nobody", *LLAMA), "1", "unknown layer-id convention"),
        (("--from", "sglang", "--arch", "Unknown", "--layers", "4"), "1", "no rule is known"),
        (("--from", "vllm", *LLAMA), "40", "stands for no hidden state"),
    ],
)
def test_what_cannot_be_said_is_refused(options: tuple[str, ...], ids: str, says: str, harness: Command) -> None:
    outcome = harness("translate", *options, "--", *ids.split())
    assert outcome.status == 2
    assert says in outcome.err
    assert outcome.err.count("\n") == 1
