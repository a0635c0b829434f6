"""The draft against one that shares no code with it: numpy, in float64, for every flag, rope type and layout of a file.

Replay and the decoders run one draft module. A fault in it would be in the golden too, and in every check of it.
"""

from __future__ import annotations

import ast
import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from harness.commands.prepare import prepare
from harness.engines.reference import draft_cache
from harness.engines.reference.draft_cache import DraftCache
from harness.engines.reference.loaded import load
from harness.engines.reference.sequential import propose
from harness.golden.find import find_golden
from harness.golden.golden_class import DEFAULT
from harness.golden.store import load_golden
from harness.models import draft as draft_module
from harness.models.chains import ParallelChains
from harness.models.draft import DraftLayer, Eagle3Draft, RMSNorm
from harness.models.draft_weights import load_draft
from harness.models.rotary import Rotary, rotate
from harness.pair.draft_spec import read_draft_spec
from harness.pair.pair import load_prompts
from suites.support import numpy_draft
from suites.support.builtin_pairs import FIXTURES
from suites.support.draft_cases import ROPES, VOCAB, DraftCase, random_case, write_case
from suites.support.numpy_draft import ACTIVATIONS, Float, NumpyDraft, Prefix

# The later ones were picked from 3,000 so that every pair of choices occurs in every way it can.
SEEDS = (*range(7), 9, 49, 272, 444, 781, 908, 1672, 1879, 2826)
CASES = [random_case(seed) for seed in SEEDS]
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
    frequencies = draft.rotary.inv_freq.numpy().astype(np.float64)
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


def _compare_rounds(draft: Eagle3Draft, ours: NumpyDraft, prefix: Prefix, tokens: list[int], states: Tensor) -> None:
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


def test_the_numpy_draft_shares_no_code_with_the_harness() -> None:
    tree = ast.parse(Path(numpy_draft.__file__).read_text())
    imports = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imports |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert {str(name).partition(".")[0] for name in imports} - sys.stdlib_module_names == {"numpy"}


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
    for name, choices in {
        "hidden_act": set(ACTIVATIONS),
        "rope": set(ROPES),
        "kv_heads": {1, 2, 3, 6},
        "boundaries": {1, 2, 3, 4},
        "prefix": {"midlayer.", "layers.0.", "model.layers.0."},
        "dtype": {torch.float64, torch.float32, torch.bfloat16, torch.float16},
    }.items():
        assert {getattr(case, name) for case in CASES} == choices


def _implied(one: str, other: str, values: tuple[bool, ...]) -> bool:
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


# Short ones; the second ends with the end token.
PROMPTS = ("build-01", "queue-02")


@pytest.mark.parametrize("name", ["tiny", "tiny-embedding"])
@torch.inference_mode()
def test_the_built_in_pairs(name: str) -> None:
    """Every step on the target's own states, and every fourth chain of the golden, which was recorded in float32."""
    golden = load_golden(find_golden(prepare(name), DEFAULT))
    pair = prepare(name, dtype="float64")
    loaded = load(pair)
    prompts = [prompt for prompt in load_prompts(pair) if prompt.id in PROMPTS]
    tokens, states = [], []
    for prompt in prompts:
        ids = [*prompt.ids, *golden.continuation(prompt.id)]
        with loaded.target.capture(loaded.boundaries) as capture:
            loaded.target.forward(torch.tensor([ids[:-1]]))
            states.append(capture.concatenated()[0])
        tokens.append(ids[1:])
    ours = NumpyDraft(FIXTURES / "tiny" / name.replace("tiny", "draft", 1), _array(loaded.target.embedding))
    compare(loaded.draft, ours, tokens, states)
    for prompt, row, state in zip(prompts, tokens, states, strict=True):
        prefix = ours.prefix(row, _array(state))
        proposals = golden.tensors[prompt.id].proposals
        assert proposals is not None
        for offset, proposed in list(enumerate(proposals.tolist()))[::4]:
            chain = ours.chain(prefix, len(prompt.ids) - 1 + offset, len(proposed))
            assert chain.tokens == proposed, (prompt.id, offset)


# Two drafts, which between them have every flag on and off.
PLAIN = DraftCase(
    seed=101, fc_norm=True, attention_bias=True, mlp_bias=True, hidden_act="gelu", rope="yarn", own_embedding=True
)
NORMED = DraftCase(
    seed=102, norm_before_fc=True, norm_before_residual=True, norm_output=True, other_width=True, own_embedding=True
)
LLAMA3 = replace(PLAIN, rope="llama3")
SAME_WIDTH = replace(PLAIN, narrow_heads=False)

_Function = Callable[..., Any]


@dataclass(frozen=True)
class Planted:
    """A fault of the harness's draft.

    Attributes:
        owner: The class or module that is made wrong.
        name: Its function.
        wrong: The wrong function, from the right one.
        case: A draft on which it shows.
        shows: The first comparison that finds it.
    """

    owner: object
    name: str
    wrong: Callable[[_Function], _Function]
    case: DraftCase = PLAIN
    shows: str = "hidden of the chain at 0 of row 0, step 0"


def _swapped(attention_input: _Function) -> _Function:
    def wrong(layer: DraftLayer, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        inputs, residual = attention_input(layer, x, g)
        return torch.cat(inputs.chunk(2, dim=-1)[::-1], dim=-1), residual

    return wrong


def _residual(*, normed: bool) -> Callable[[_Function], _Function]:
    def change(attention_input: _Function) -> _Function:
        def wrong(layer: DraftLayer, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
            return attention_input(layer, x, g)[0], layer.hidden_norm(g) if normed else g

        return wrong

    return change


def _layer_output(
    *, norm: bool = True, gate_first: bool = True, activation: _Function | None = None
) -> Callable[[_Function], _Function]:
    def wrong(layer: DraftLayer, attended: Tensor, residual: Tensor) -> Tensor:
        hidden: Tensor = residual + layer.self_attn["o_proj"](attended.flatten(-2))
        x = layer.post_attention_layernorm(hidden) if norm else hidden
        gate, up = layer.mlp["gate_proj"](x), layer.mlp["up_proj"](x)
        if not gate_first:
            gate, up = up, gate
        mixed: Tensor = layer.mlp["down_proj"]((activation or layer.activation)(gate) * up)
        return hidden + mixed

    return lambda _right: wrong


def _interleaved(x: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
    """Turn neighbouring dimensions together, as GPT-J does."""
    half = x.shape[-1] // 2
    cos, sin = (part[..., :half].unsqueeze(-2) for part in table)
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2)


def _slots_reversed(fuse: _Function) -> _Function:
    return lambda draft, states: fuse(draft, torch.cat(states.chunk(draft.num_boundaries, dim=-1)[::-1], dim=-1))


def _rope_unscaled(build: _Function) -> _Function:
    return lambda rotary, spec: build(rotary, replace(spec, rope={"rope_theta": spec.rope.get("rope_theta", 1.0)}))


def _rope_rounded(build: _Function) -> _Function:
    def wrong(rotary: Rotary, *given: Any) -> None:
        build(rotary, *given)
        rotary.inv_freq = rotary.inv_freq.bfloat16().float()

    return wrong


def _heads_repeated(attend: _Function) -> _Function:
    """Repeat the key heads as a block, so that query heads 0, 2, 4 share one."""

    def wrong(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        groups = q.shape[2] // k.shape[1]
        return cast(Tensor, attend(q, k.repeat(1, groups, 1, 1), v.repeat(1, groups, 1, 1), mask))

    return wrong


def _scores_by(width: _Function) -> Callable[[_Function], _Function]:
    """Divide the scores by the root of another width than the head's."""
    return lambda queries: lambda layer, x, rope: queries(layer, x, rope) * (layer.head_dim / width(layer)) ** 0.5


# A single key is attended to whatever its score is, so scores and rotations show at a later start.
_LATER = "hidden of the chain at 3 of row 0, step 0"
_STEP_1 = "hidden of the chain at 0 of row 0, step 1"
_LOGITS = "logits of the chain at 0 of row 0, step 0"
_ROUND = "logits of the round at 3 of the sequential decoder"

FAULTS = {
    "state before embedding": Planted(DraftLayer, "attention_input", _swapped),
    "residual from the normed g": Planted(DraftLayer, "attention_input", _residual(normed=True)),
    "residual from g itself": Planted(DraftLayer, "attention_input", _residual(normed=False), NORMED),
    "no norm before the MLP": Planted(DraftLayer, "output", _layer_output(norm=False)),
    "gate and up exchanged": Planted(DraftLayer, "output", _layer_output(gate_first=False)),
    "silu for gelu": Planted(DraftLayer, "output", _layer_output(activation=F.silu)),
    "gelu by tanh": Planted(DraftLayer, "output", _layer_output(activation=partial(F.gelu, approximate="tanh"))),
    "key heads off by one": Planted(
        DraftLayer,
        "keys_values",
        lambda right: lambda *given: tuple(part.roll(1, dims=2) for part in right(*given)),
    ),
    "key heads repeated as a block": Planted(draft_cache, "attend", _heads_repeated, shows=_ROUND),
    "scores by hidden_size / heads": Planted(
        DraftLayer,
        "queries",
        _scores_by(lambda layer: layer.self_attn["o_proj"].out_features / layer.num_heads),
        shows=_LATER,
    ),
    "scores not scaled": Planted(DraftLayer, "queries", _scores_by(lambda _layer: 1), SAME_WIDTH, shows=_LATER),
    "values rotated": Planted(
        DraftLayer,
        "keys_values",
        lambda right: lambda layer, x, rope: (right(layer, x, rope)[0], rotate(right(layer, x, rope)[1], rope)),
    ),
    "neighbouring dimensions rotated": Planted(draft_module, "rotate", lambda _right: _interleaved, shows=_LATER),
    "rotation backwards": Planted(
        draft_module, "rotate", lambda right: lambda x, table: right(x, (table[0], -table[1])), NORMED, shows=_LATER
    ),
    "no rope scaling": Planted(Rotary, "__init__", _rope_unscaled, shows="frequencies"),
    "frequencies rounded to bfloat16": Planted(Rotary, "__init__", _rope_rounded, shows="frequencies"),
    "no scale of cosines and sines": Planted(
        Rotary,
        "table",
        lambda right: lambda rotary, *given: tuple(part / rotary.scaling for part in right(rotary, *given)),
        shows=_LATER,
    ),
    "no llama3 scaling": Planted(Rotary, "__init__", _rope_unscaled, LLAMA3, shows="frequencies"),
    "chains one position late": Planted(
        Eagle3Draft, "step_positions", lambda right: lambda *given: right(*given) + 1, shows=_LATER
    ),
    "chains that stay at their start": Planted(
        Eagle3Draft, "step_positions", lambda _right: lambda _draft, starts, _step: starts, shows=_STEP_1
    ),
    "cached chains one position late": Planted(
        DraftCache,
        "run",
        lambda right: lambda cache, tokens, g, first: right(cache, tokens, g, first + (tokens.shape[1] == 1)),
        shows=_ROUND,
    ),
    "normed state recycled": Planted(
        Eagle3Draft, "recycle", lambda _right: lambda draft, hidden: draft.norm(hidden), shows=_STEP_1
    ),
    "state recycled before its norm": Planted(
        Eagle3Draft, "recycle", lambda _right: lambda _draft, hidden: hidden, NORMED, shows=_STEP_1
    ),
    "no final norm": Planted(
        Eagle3Draft, "logits", lambda _right: lambda draft, hidden: draft.lm_head(hidden), shows=_LOGITS
    ),
    "d2t subtracted": Planted(
        Eagle3Draft,
        "to_target",
        lambda _right: lambda draft, ids: ids - draft.d2t[ids],
        shows="^chain at 0 of row 0, step 0",
    ),
    "d2t as target ids": Planted(
        Eagle3Draft, "to_target", lambda _right: lambda draft, ids: draft.d2t[ids], shows="^chain at 0 of row 0, step 0"
    ),
    "d2t left out": Planted(
        Eagle3Draft, "to_target", lambda _right: lambda _draft, ids: ids, shows="^chain at 0 of row 0, step 0"
    ),
    "fc's slots reversed": Planted(Eagle3Draft, "fuse", _slots_reversed, shows="fused states"),
    "no norm of each boundary": Planted(
        Eagle3Draft, "fuse", lambda _right: lambda draft, states: draft.fc(states), shows="fused states"
    ),
    "no norm before fc": Planted(
        Eagle3Draft, "fuse", lambda _right: lambda draft, states: draft.fc(states), NORMED, shows="fused states"
    ),
    "another epsilon": Planted(
        RMSNorm,
        "forward",
        lambda _right: lambda norm, x: F.rms_norm(x, x.shape[-1:], norm.weight, 1e-6),
        shows="fused states",
    ),
    "norm weights added to one": Planted(
        RMSNorm,
        "forward",
        lambda _right: lambda norm, x: F.rms_norm(x, x.shape[-1:], 1 + norm.weight, norm.eps),
        shows="fused states",
    ),
    "norms without their weights": Planted(
        RMSNorm,
        "forward",
        lambda _right: lambda norm, x: F.rms_norm(x, x.shape[-1:], None, norm.eps),
        shows="fused states",
    ),
    "mean taken off in the norm": Planted(
        RMSNorm,
        "forward",
        lambda _right: lambda norm, x: F.layer_norm(x, x.shape[-1:], norm.weight, None, norm.eps),
        shows="fused states",
    ),
}


@pytest.mark.parametrize("case", [PLAIN, NORMED, LLAMA3, SAME_WIDTH], ids=["plain", "normed", "llama3", "same width"])
def test_drafts_of_the_faults_are_right_without_them(tmp_path: Path, case: DraftCase) -> None:
    compare_case(tmp_path, case)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    fault = FAULTS[name]
    monkeypatch.setattr(fault.owner, fault.name, fault.wrong(getattr(fault.owner, fault.name)))
    with pytest.raises(AssertionError, match=fault.shows):
        compare_case(tmp_path, fault.case)
