"""The draft module, against an independent computation by hand."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
import torch
from torch import Tensor

from harness.engines.reference.draft_cache import DraftCache
from harness.models.chains import ParallelChains
from harness.models.draft import Eagle3Draft, RMSNorm
from harness.pair.draft_spec import read_draft_spec
from suites.support.random_pair import VOCAB, WIDTH, load_written_draft, write_draft


def _by_hand(draft: Eagle3Draft, tokens: list[int], states: Tensor, chain: list[int], **flags: bool) -> list[Tensor]:
    """Compute each step's layer output for a chain after all of `states`, one position and head at a time.

    Args:
        draft: Where the weights are.
        tokens: The token after each position.
        states: [T, 3 * WIDTH].
        chain: Tokens of steps 1 and later.
        flags: The config's flags.

    Returns:
        The layer outputs [H] of steps 0, 1, …
    """
    weights = {name: value.double() for name, value in draft.state_dict().items()}

    def norm(x: Tensor, name: str) -> Tensor:
        return cast(Tensor, weights[name] * x / torch.sqrt((x * x).mean() + 1e-5))

    def fuse(state: Tensor) -> Tensor:
        if flags.get("norm_before_fc"):
            state = norm(state, "input_norm.weight")
        if flags.get("fc_norm"):
            parts = [norm(part, f"fc_norm.{i}.weight") for i, part in enumerate(state.split(WIDTH))]
            state = torch.cat(parts)
        return cast(Tensor, weights["fc.weight"] @ state)

    def rope(x: Tensor, position: int) -> Tensor:
        half = len(x) // 2
        angle = position / 10000.0 ** (torch.arange(half, dtype=torch.float64) * 2 / len(x))
        low, high = x[:half], x[half:]
        return torch.cat((low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()))

    def block(token: int, g: Tensor, position: int, cache: list[tuple[Tensor, Tensor]]) -> Tensor:
        normed = norm(g, "midlayer.hidden_norm.weight")
        x = torch.cat((norm(weights["embed_tokens.weight"][token], "midlayer.input_layernorm.weight"), normed))
        q, k, v = (weights[f"midlayer.self_attn.{name}_proj.weight"] @ x for name in "qkv")
        keys = torch.stack([rope(part, position) for part in k.split(12)])
        cache.append((keys, v.reshape(2, 12)))
        heads = []
        for head in range(4):
            query = rope(q[head * 12 : head * 12 + 12], position)
            scores = torch.stack([query @ past[head // 2] for past, _ in cache]) / 12**0.5
            heads.append(sum(w * past[head // 2] for w, (_, past) in zip(scores.softmax(0), cache, strict=True)))
        residual = normed if flags.get("norm_before_residual") else g
        hidden = residual + weights["midlayer.self_attn.o_proj.weight"] @ torch.cat(heads)
        y = norm(hidden, "midlayer.post_attention_layernorm.weight")
        gate = weights["midlayer.mlp.gate_proj.weight"] @ y
        up = weights["midlayer.mlp.up_proj.weight"] @ y
        return cast(Tensor, hidden + weights["midlayer.mlp.down_proj.weight"] @ (gate * gate.sigmoid() * up))

    cache: list[tuple[Tensor, Tensor]] = []
    outputs = [block(token, fuse(state), i, cache) for i, (token, state) in enumerate(zip(tokens, states, strict=True))]
    results = [outputs[-1]]
    for step, token in enumerate(chain):
        g = norm(results[-1], "norm.weight") if flags.get("norm_output") else results[-1]
        results.append(block(token, g, len(tokens) + step, cache))
    return results


FLAGS = [
    {},
    {"norm_before_residual": True},
    {"norm_before_fc": True},
    {"fc_norm": True},
    {"norm_output": True},
    {"fc_norm": True, "norm_output": True, "norm_before_residual": True},
]


@pytest.mark.parametrize("flags", FLAGS, ids=lambda flags: "+".join(flags) or "plain")
@torch.inference_mode()
def test_every_flag_computes_what_it_says(tmp_path: Path, flags: dict[str, bool]) -> None:
    draft = load_written_draft(tmp_path, **flags)
    tokens, chain = [3, 60, 7, 7, 21], [11, 0, 45]
    states = torch.randn(5, 3 * WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    expected = _by_hand(draft, tokens, states, chain, **flags)

    chains = ParallelChains(draft, torch.tensor([tokens]), states[None], torch.tensor([[1, 4]]))
    parallel = [chains.hidden[0, 1]] + [chains.step(torch.tensor([[5, token]]))[0, 1] for token in chain]
    cache = DraftCache(draft, 1, 16)
    cached = [cache.run(torch.tensor([tokens]), draft.fuse(states[None]), 0)[0, -1]]
    for step, token in enumerate(chain):
        g = draft.recycle(cached[-1])[None, None]
        cached.append(cache.run(torch.tensor([[token]]), g, len(tokens) + step)[0, 0])
    # The module's rope frequencies are float32, as transformers computes them: about 1e-7.
    for by_hand, one, other in zip(expected, parallel, cached, strict=True):
        torch.testing.assert_close(one, by_hand, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(other, one, rtol=1e-12, atol=1e-12)


def test_flags_change_the_result(tmp_path: Path) -> None:
    """Each flag, set or not, on the same weights: norm weights off one make every one visible."""
    states = torch.randn(1, 5, 3 * WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    tokens = torch.tensor([[3, 60, 7, 7, 21]])
    results = []
    for index, flags in enumerate(FLAGS):
        draft = load_written_draft(tmp_path / str(index), **flags)
        reference = load_written_draft(tmp_path / "plain")
        shared = {name: value for name, value in reference.state_dict().items() if name in draft.state_dict()}
        draft.load_state_dict(shared, strict=False)
        chains = ParallelChains(draft, tokens, states)
        results.append(chains.step(tokens))
    for index, one in enumerate(results):
        for other in results[:index]:
            assert (one - other).abs().max() > 1e-3


def test_without_aux_states_there_is_no_fc(tmp_path: Path) -> None:
    write_draft(tmp_path, eagle_config={"use_aux_hidden_state": False})
    draft = Eagle3Draft(read_draft_spec(tmp_path), 1)
    assert not hasattr(draft, "fc")
    states = torch.randn(2, WIDTH)
    assert draft.fuse(states) is states


def test_vocabulary_map_is_an_offset(tmp_path: Path) -> None:
    draft = load_written_draft(tmp_path)
    ids = torch.arange(draft.spec.draft_vocab_size)
    targets = draft.to_target(ids)
    assert not torch.equal(targets, ids)
    inverse = draft.from_target()
    assert torch.equal(inverse[targets], ids)
    assert int((inverse == -1).sum()) == VOCAB - draft.spec.draft_vocab_size


def test_norm_keeps_its_input_dtype() -> None:
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        assert RMSNorm(8, 1e-6).to(dtype)(torch.ones(2, 8, dtype=dtype)).dtype == dtype
