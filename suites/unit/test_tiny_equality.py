"""On the built-in pairs, in float64: replay equals both decoders round by round, and they equal plain decoding."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import transformers

from harness.check import prepare
from harness.engines.base import Progress
from harness.engines.reference.batched import batched
from harness.engines.reference.engine import LoadedPair, load
from harness.engines.reference.rounds import Limits
from harness.engines.reference.sequential import sequential
from harness.engines.reference.threads import suitable_threads
from harness.models.precision import exact
from harness.pair.pair import load_prompts
from harness.pair.prompts import Prompt
from harness.record import PromptRecord
from suites.builtin_pairs import FIXTURES

# The right wiring of one draft is the wrong one of the other.
WIRINGS = [(2, 4, 7), (0, 2, 4)]


class _Case:
    """A pair in float64 with its prompts and, per wiring-independent limit, its plain greedy texts."""

    def __init__(self, name: str) -> None:
        pair = prepare(name, dtype="float64")
        with suitable_threads(pair):
            self.loaded: LoadedPair = load(pair)
            self.prompts: list[Prompt] = load_prompts(pair)
            # One text for every k: the longest limit's, of which each k takes a part.
            self.loaded.limits = Limits(pair.settings.decode.max_new_tokens, 5, pair.target.eos_ids)
            self.texts = self.loaded.texts(self.prompts, Progress())


@pytest.fixture(scope="module", params=["tiny", "tiny-embedding"])
def case(request: pytest.FixtureRequest) -> _Case:
    return _Case(request.param)


def _rewired(case: _Case, wiring: tuple[int, ...], k: int, new_tokens: int) -> LoadedPair:
    """Return the case's models with other boundaries, chain length and token limit."""
    pair = case.loaded.pair.with_steps(k)
    reading = replace(pair.wiring.served, boundaries=wiring)
    loaded = LoadedPair(
        replace(pair, wiring=replace(pair.wiring, served=reading)), case.loaded.target, case.loaded.draft
    )
    loaded.limits = Limits(new_tokens, k, pair.target.eos_ids)
    return loaded


def _same(replayed: list[PromptRecord], decoded: list[PromptRecord]) -> None:
    assert len(replayed) == len(decoded) >= 64
    for one, other in zip(replayed, decoded, strict=True):
        assert one.rounds == other.rounds, one.id
        assert one.eos_round == other.eos_round, one.id
        assert one.output_ids[: len(other.output_ids)] == other.output_ids, one.id


# Right wiring with every chain length; the wiring of the other draft with two of them.
CASES = [("right", k) for k in (1, 2, 3, 4, 5)] + [("wrong", k) for k in (2, 4)]


@pytest.mark.slow
@pytest.mark.parametrize(("wiring", "k"), CASES)
def test_replay_equals_sequential_decoding(case: _Case, wiring: str, k: int) -> None:
    """Every prompt, one by one and batched; the texts are cut short, which leaves the first rounds of all."""
    right = case.loaded.pair.boundaries
    boundaries = right if wiring == "right" else next(other for other in WIRINGS if other != right)
    for decode, new_tokens in ((sequential, 12), (batched, 32)):
        loaded = _rewired(case, boundaries, k, new_tokens)
        with suitable_threads(loaded.pair):
            texts = [loaded.limits.cut(text) for text in case.texts]
            replayed = loaded.replay(case.prompts, texts, Progress())
            _same(replayed, decode(loaded.target, loaded.draft, boundaries, case.prompts, loaded.limits))


@pytest.mark.slow
def test_replay_equals_sequential_decoding_to_the_end(case: _Case) -> None:
    """The pair as it is served, its whole texts: every round that the golden counts."""
    boundaries = case.loaded.pair.boundaries
    loaded = _rewired(case, boundaries, 4, case.loaded.limits.max_new_tokens)
    with suitable_threads(loaded.pair):
        texts = [loaded.limits.cut(text) for text in case.texts]
        replayed = loaded.replay(case.prompts, texts, Progress())
        _same(replayed, batched(loaded.target, loaded.draft, boundaries, case.prompts, loaded.limits))
    assert sum(len(record.rounds or ()) for record in replayed) > 1500


def test_decoding_puts_out_transformers_greedy_text(case: _Case) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(FIXTURES / "tiny" / "target", dtype=torch.float64)
    limits = case.loaded.limits
    for prompt, text in list(zip(case.prompts, case.texts, strict=True))[::8]:
        ids = torch.tensor([prompt.ids])
        with exact(torch.float64), suitable_threads(case.loaded.pair):
            plain = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=limits.text_length,
            )
        assert plain[0, ids.shape[1] :].tolist() == list(text)
