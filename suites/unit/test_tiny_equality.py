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
from suites.builtin_pairs import FIXTURES

# The right wiring of one draft is the wrong one of the other; the third is wrong for both, and in no order.
WIRINGS = [(2, 4, 7), (0, 2, 4), (7, 8, 1)]


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


@pytest.mark.slow
@pytest.mark.parametrize("wiring", WIRINGS, ids=str)
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_replay_equals_sequential_decoding(case: _Case, wiring: tuple[int, ...], k: int) -> None:
    loaded = case.loaded
    limits = replace(loaded.limits, num_steps=k)
    pair = loaded.pair.with_steps(k)
    reading = replace(pair.wiring.served, boundaries=wiring)
    loaded = LoadedPair(replace(pair, wiring=replace(pair.wiring, served=reading)), loaded.target, loaded.draft)
    assert loaded.limits == limits
    with suitable_threads(pair):
        replayed = loaded.replay(case.prompts, [limits.cut(text) for text in case.texts], Progress())
        arguments = (loaded.target, loaded.draft, wiring, case.prompts, limits)
        decoded = [batched(*arguments)]
        # One prompt at a time costs the most: the two ends of k, under the right and a wrong wiring.
        if k in (1, 4) and wiring != WIRINGS[2]:
            decoded.append(sequential(*arguments))
    assert sum(len(record.rounds or ()) for record in replayed) > 1000
    for records in decoded:
        for one, other in zip(replayed, records, strict=True):
            assert one.rounds == other.rounds
            assert one.eos_round == other.eos_round
            assert one.output_ids[: len(other.output_ids)] == other.output_ids


def test_decoding_puts_out_transformers_greedy_text(case: _Case) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(FIXTURES / "tiny" / "target", dtype=torch.float64)
    limits = case.loaded.limits
    for prompt, text in list(zip(case.prompts, case.texts, strict=True))[::6]:
        ids = torch.tensor([prompt.ids])
        with exact(torch.float64), suitable_threads(case.loaded.pair):
            plain = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=limits.text_length,
            )
        assert plain[0, ids.shape[1] :].tolist() == list(text)
