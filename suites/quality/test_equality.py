"""On the built-in pairs, in float64: replay equals both decoders round by round, and they equal plain decoding."""

from __future__ import annotations

from dataclasses import replace

import hypothesis
import pytest
import torch
import transformers

from harness.commands.prepare import prepare
from harness.counts.rounds import Limits
from harness.engines.reference.batched import batched
from harness.engines.reference.loaded import LoadedPair, load
from harness.engines.reference.replay import replay
from harness.engines.reference.sequential import sequential
from harness.engines.reference.threads import suitable_threads
from harness.golden.find import golden_in_use
from harness.golden.store import load_golden
from harness.models.precision import exact
from harness.pair.pair import load_prompts
from harness.pair.prompts import Prompt
from suites.support.builtin_pairs import FIXTURES

# The right wiring of one draft is the wrong one of the other.
WIRINGS = [(2, 4, 7), (0, 2, 4)]


class _Case:
    """A pair in float64 with its prompts and their recorded texts, which no chain length or wiring changes."""

    def __init__(self, name: str) -> None:
        pair = prepare(name, dtype="float64")
        self.loaded: LoadedPair = load(pair)
        self.prompts: list[Prompt] = load_prompts(pair)
        golden = load_golden(golden_in_use(pair))
        self.texts = [golden.continuation(prompt.id) for prompt in self.prompts]


@pytest.fixture(scope="module", params=["tiny", "tiny-embedding"])
def case(request: pytest.FixtureRequest) -> _Case:
    return _Case(request.param)


def _rewired(case: _Case, wiring: tuple[int, ...], k: int, new_tokens: int) -> LoadedPair:
    """Return the case's models with other boundaries, chain length and token limit."""
    limits = Limits(new_tokens, k, case.loaded.pair.target.eos_ids)
    return replace(case.loaded, boundaries=wiring, limits=limits)


# The pair's own chain length to the end of every text; the others over half of it, which is half the time.
WHOLE = 4
# Every chain length and both wirings in a nightly run; the extremes of them in every one.
_EVERY = [*(("right", k) for k in (1, 2, 3, 4, 5)), ("wrong", 2), ("wrong", WHOLE)]
_RUNS = _EVERY if hypothesis.settings().max_examples > 100 else [("right", 1), ("right", WHOLE), ("wrong", 2)]


@pytest.mark.slow
@pytest.mark.parametrize(("wiring", "k"), _RUNS)
def test_replay_equals_sequential_decoding(case: _Case, wiring: str, k: int) -> None:
    """Every prompt, batched and one by one; one by one the first rounds only."""
    right = case.loaded.pair.boundaries
    boundaries = right if wiring == "right" else next(other for other in WIRINGS if other != right)
    most = case.loaded.limits.max_new_tokens
    loaded = _rewired(case, boundaries, k, most if k == WHOLE else most // 2)
    with suitable_threads(loaded.pair):
        texts = [loaded.limits.cut(text) for text in case.texts]
        replayed = replay(loaded, case.prompts, texts)
        together = batched(loaded, case.prompts)
        alone = sequential(replace(loaded, limits=replace(loaded.limits, max_new_tokens=16)), case.prompts)
    for one, other, first in zip(replayed, together, alone, strict=True):
        assert one.rounds == other.rounds, one.id
        assert one.eos_round == other.eos_round, one.id
        assert one.continuation[: len(other.continuation)] == other.continuation, one.id
        assert one.rounds is not None
        assert first.rounds is not None
        assert one.rounds[: len(first.rounds)] == first.rounds, one.id
        assert one.continuation[: len(first.continuation)] == first.continuation, one.id
    assert len(replayed) >= 64
    # At most k+1 tokens a round, over texts of nearly the limit's length.
    assert sum(len(record.rounds or ()) for record in replayed) > 80 * loaded.limits.max_new_tokens / (k + 1)
    assert sum(len(record.rounds or ()) for record in alone) > 80 * 16 / (k + 1)


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
