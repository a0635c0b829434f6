"""The harness's draft against one in numpy that shares no code with it: `suites/support/numpy_draft.py`.

What is left out, since the harness is not float64 there: a float64 checkpoint of values that float32 does not have.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from harness.commands.prepare import prepare
from harness.engines.reference import draft_cache
from harness.engines.reference.draft_cache import DraftCache
from harness.engines.reference.loaded import load
from harness.engines.reference.replay import replay
from harness.engines.reference.sequential import propose
from harness.golden.find import find_golden
from harness.golden.golden_class import DEFAULT
from harness.golden.store import load_golden
from harness.models.chains import ParallelChains
from harness.models.draft import DraftLayer, Eagle3Draft, RMSNorm, Rotary
from harness.models.draft_weights import load_draft
from harness.pair.draft_spec import read_draft_spec
from harness.pair.pair import load_prompts
from suites.support.builtin_pairs import FIXTURES
from suites.support.draft_cases import ROPES, VOCAB, DraftCase, random_case, write_case
from suites.support.numpy_draft import ACTIVATIONS, Float, NumpyDraft, Prefix

CASES = [random_case(seed) for seed in range(40)]
LENGTHS = (11, 7)
STEPS = 5
# How many positions the cache is extended by in its last rounds; all others come in the first.
ROUNDS = (1, 3, 2, 1)
TOLERANCE = 1e-9
# The harness keeps its frequencies as float32.
FREQUENCY_TOLERANCE = 5e-7


def _array(x: Tensor) -> Float:
    return x.numpy().astype(np.float64)


def _same(harness: Tensor, ours: Float, what: str) -> None:
    np.testing.assert_allclose(_array(harness), ours, rtol=TOLERANCE, atol=TOLERANCE, err_msg=what)


def load_both(folder: Path, embedding: Tensor, boundaries: int) -> tuple[Eagle3Draft, NumpyDraft]:
    """Load one checkpoint twice."""
    spec = read_draft_spec(folder)
    draft = load_draft(spec, num_boundaries=boundaries, target_embedding=embedding, dtype=torch.float64)
    return draft, NumpyDraft(folder, _array(embedding))


def compare(draft: Eagle3Draft, ours: NumpyDraft, tokens: list[list[int]], states: list[Tensor]) -> None:
    """Compare everything that the harness computes with its draft.

    Args:
        draft: The harness's, in float64.
        ours: The one in numpy, of the same checkpoint.
        tokens: Of each row, the token after each position.
        states: Of each row, the concatenated target states [T, width].

    Raises:
        AssertionError: The two differ.
    """
    _compare_rope(draft, ours)
    prefixes = [ours.prefix(row, _array(state)) for row, state in zip(tokens, states, strict=True)]
    for prefix, state in zip(prefixes, states, strict=True):
        _same(draft.fuse(state), prefix.fused, "fused states")
    _compare_chains(draft, ours, prefixes, tokens, states)
    _compare_rounds(draft, ours, prefixes[0], tokens[0], states[0])
    _compare_ragged(draft, ours, prefixes, tokens, states)


def _compare_rope(draft: Eagle3Draft, ours: NumpyDraft) -> None:
    """Compare the frequencies, and go on with the harness's: their rounding is no part of the rest."""
    frequencies = draft.rotary.get_buffer("inv_freq").numpy().astype(np.float64)
    np.testing.assert_allclose(frequencies, ours.frequencies, rtol=FREQUENCY_TOLERANCE, atol=0, err_msg="frequencies")
    assert draft.rotary.scaling == pytest.approx(ours.rope_factor, rel=1e-12)
    ours.frequencies = frequencies


def _compare_chains(
    draft: Eagle3Draft, ours: NumpyDraft, prefixes: list[Prefix], tokens: list[list[int]], states: list[Tensor]
) -> None:
    """Compare chains at three positions of each row, with known tokens and with the draft's own."""
    starts = [[0, len(row) // 3, len(row) - 1] for row in tokens]
    known = torch.randint(0, VOCAB, (len(tokens), 3, STEPS - 1), generator=torch.Generator().manual_seed(3))
    padded_tokens = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in tokens], batch_first=True)
    padded_states = torch.nn.utils.rnn.pad_sequence(states, batch_first=True)
    for given in (known, None):
        expected = [
            [
                ours.chain(prefix, start, STEPS, None if given is None else given[row, index].tolist())
                for index, start in enumerate(starts[row])
            ]
            for row, prefix in enumerate(prefixes)
        ]
        chains = ParallelChains(draft, padded_tokens, padded_states, torch.tensor(starts))
        for step in range(STEPS):
            logits = draft.logits(chains.hidden)
            proposed = draft.to_target(logits.argmax(-1))
            for row, column in itertools.product(range(len(tokens)), range(3)):
                chain, what = expected[row][column], f"chain at {starts[row][column]} of row {row}, step {step}"
                _same(chains.hidden[row, column], chain.hidden[step], f"hidden of the {what}")
                _same(logits[row, column], chain.logits[step], f"logits of the {what}")
                assert int(proposed[row, column]) == chain.tokens[step], what
            if step + 1 < STEPS:
                chains.step(proposed if given is None else given[:, :, step])


def _compare_rounds(
    draft: Eagle3Draft, ours: NumpyDraft, prefix: Prefix, tokens: list[int], states: Tensor
) -> None:
    """Compare the sequential decoder's rounds: each writes over the keys of the chain before it."""
    length = len(tokens)
    cache = DraftCache(draft, 1, length + STEPS)
    first = 0
    for count in (length - sum(ROUNDS), *ROUNDS):
        end = first + count
        proposed = propose(draft, cache, torch.tensor([tokens[first:end]]), states[None, first:end], first, STEPS)
        chain = ours.chain(prefix, end - 1, STEPS)
        what = f"round at {end - 1} of the sequential decoder"
        _same(proposed.fused[0, 0], prefix.fused[end - 1], f"fused states of the {what}")
        _same(proposed.logits[0], chain.logits, f"logits of the {what}")
        assert proposed.chain[0].tolist() == chain.tokens, what
        first = end


def _compare_ragged(
    draft: Eagle3Draft, ours: NumpyDraft, prefixes: list[Prefix], tokens: list[list[int]], states: list[Tensor]
) -> None:
    """Compare the batched decoder's cache, whose rows have their own lengths, with known tokens."""
    lengths = torch.tensor([len(row) for row in tokens])
    longest = int(lengths.max())
    cache = DraftCache(draft, len(tokens), longest + STEPS)
    padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in tokens], batch_first=True)
    fused = draft.fuse(torch.nn.utils.rnn.pad_sequence(states, batch_first=True))
    every = cache.run_ragged(padded, fused, torch.arange(longest).expand(len(tokens), -1))
    for row, prefix in enumerate(prefixes):
        _same(every[row, : len(tokens[row])], prefix.hidden, f"step 0 of row {row} of the batched decoder")
    known = torch.randint(0, VOCAB, (len(tokens), STEPS - 1), generator=torch.Generator().manual_seed(4))
    chains = [
        ours.chain(prefix, len(row) - 1, STEPS, known[index].tolist())
        for index, (prefix, row) in enumerate(zip(prefixes, tokens, strict=True))
    ]
    hidden = torch.stack([every[row, length - 1] for row, length in enumerate(lengths.tolist())])[:, None]
    for step in range(1, STEPS):
        positions = lengths[:, None] - 1 + step
        hidden = cache.run_ragged(known[:, step - 1 : step], draft.recycle(hidden), positions)
        for row, chain in enumerate(chains):
            _same(hidden[row, 0], chain.hidden[step], f"step {step} of row {row} of the batched decoder")


def compare_case(folder: Path, case: DraftCase) -> None:
    """Write a case's checkpoint, load it twice and compare the two on random tokens and states."""
    write_case(folder, case)
    draft, ours = load_both(folder, case.target_embedding, case.boundaries)
    generator = torch.Generator().manual_seed(case.seed + 2000)
    tokens = [torch.randint(0, VOCAB, (length,), generator=generator).tolist() for length in LENGTHS]
    width = case.boundaries * case.target_width
    # As unequal as a target's boundaries are: a slot's scale is lost if its place is.
    scale = torch.linspace(0.5, 2.0, width, dtype=torch.float64)
    states = [torch.randn(length, width, generator=generator, dtype=torch.float64) * scale for length in LENGTHS]
    compare(draft, ours, tokens, states)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.seed))
def test_random_drafts(tmp_path: Path, case: DraftCase) -> None:
    compare_case(tmp_path, case)


_SWITCHES = (
    "use_aux_hidden_state",
    "norm_before_fc",
    "fc_norm",
    "norm_before_residual",
    "norm_output",
    "nested",
    "legacy",
    "attention_bias",
    "mlp_bias",
    "tie_word_embeddings",
    "narrow_heads",
    "other_width",
    "small_vocabulary",
    "own_embedding",
    "old_rope",
    "speculators",
)
# Pairs of switches of which at most one can be on.
_EXCLUSIVE = {("norm_before_fc", "fc_norm"), ("norm_before_fc", "legacy"), ("tie_word_embeddings", "small_vocabulary")}


def test_the_random_drafts_cover_every_choice() -> None:
    for one, other in itertools.combinations(_SWITCHES, 2):
        seen = {(getattr(case, one), getattr(case, other)) for case in CASES}
        for values in itertools.product((False, True), repeat=2):
            possible = values != (True, True) or (one, other) not in _EXCLUSIVE
            assert (values in seen) or not possible or _implied(one, other, values), (one, other, values)
    for name, values in {
        "hidden_act": set(ACTIVATIONS),
        "rope": set(ROPES),
        "kv_heads": {1, 2, 3, 6},
        "boundaries": {1, 2, 3, 4},
        "prefix": {"midlayer.", "layers.0.", "model.layers.0."},
        "dtype": {torch.float64, torch.float32, torch.bfloat16, torch.float16},
    }.items():
        assert {getattr(case, name) for case in CASES} == values


def _implied(one: str, other: str, values: tuple[bool, bool]) -> bool:
    """Whether the two values exclude each other: without fc nothing is normed before it, and so on."""
    chosen = {one: values[0], other: values[1]}
    rules = (
        {"use_aux_hidden_state": False, "norm_before_fc": True},
        {"use_aux_hidden_state": False, "fc_norm": True},
        {"use_aux_hidden_state": False, "legacy": True},
        {"use_aux_hidden_state": False, "other_width": True},
        {"fc_norm": False, "legacy": True},
        {"other_width": True, "own_embedding": False},
    )
    return chosen in rules


@pytest.mark.parametrize("name", ["tiny", "tiny-embedding"])
@torch.inference_mode()
def test_the_built_in_pairs(name: str) -> None:
    """Each step on the target's own states, and every chain that a replay finds in the golden's texts."""
    pair = prepare(name, dtype="float64")
    loaded = load(pair)
    golden = load_golden(find_golden(prepare(name), DEFAULT))
    prompts = load_prompts(pair)[:2]
    texts = [golden.continuation(prompt.id)[:24] for prompt in prompts]
    tokens, states = [], []
    for prompt, text in zip(prompts, texts, strict=True):
        ids = [*prompt.ids, *text]
        with loaded.target.capture(loaded.boundaries) as capture:
            loaded.target.forward(torch.tensor([ids[:-1]]))
            states.append(capture.concatenated()[0])
        tokens.append(ids[1:])
    ours = NumpyDraft(FIXTURES / "tiny" / name.replace("tiny", "draft", 1), _array(loaded.target.embedding))
    compare(loaded.draft, ours, tokens, states)
    for prompt, text, record, row, state in zip(
        prompts, texts, replay(loaded, prompts, texts), tokens, states, strict=True
    ):
        prefix = ours.prefix(row, _array(state))
        assert len(record.proposals) > 16
        for offset, proposed in enumerate(record.proposals):
            chain = ours.chain(prefix, len(prompt.ids) - 1 + offset, len(proposed))
            assert chain.tokens == proposed.tolist(), (prompt.id, text, offset)
