"""The draft against one that shares no code with it: numpy, in float64, for every flag and rope type.

Replay and the decoders run one draft module. A fault in it would be in the golden too, and in every check of it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

from harness.commands.prepare import prepare
from harness.engines.reference.draft_cache import DraftCache
from harness.engines.reference.loaded import load
from harness.engines.reference.sequential import propose
from harness.models import draft as module
from harness.models.chains import ParallelChains
from harness.models.draft import DraftLayer, Eagle3Draft, RMSNorm
from harness.models.draft_weights import load_draft
from harness.models.rotary import Rotary
from harness.pair.draft_spec import read_draft_spec
from harness.pair.pair import load_prompts
from suites.support.numpy_draft import NumpyDraft

VOCAB, LENGTH, STEPS, CASES = 48, 7, 4, 48
# Frequencies are kept in float32; they are compared first, and then taken out of the comparison.
FREQUENCIES, REST = 5e-7, 1e-9

_ROPES: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"type": "linear", "factor": 2.5},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    "yarn with factors of its own": {
        "rope_type": "yarn",
        "factor": 8.0,
        "original_max_position_embeddings": 128,
        "beta_fast": 24,
        "beta_slow": 2,
        "mscale": 0.9,
        "mscale_all_dim": 0.4,
        "truncate": False,
    },
}
_CHOICES: dict[str, tuple[Any, ...]] = {
    "use_aux_hidden_state": (True, True, True, False),
    "norm_before_fc": (False, True),
    "fc_norm": (False, True),
    "norm_before_residual": (False, True),
    "norm_output": (False, True),
    "attention_bias": (False, True),
    "mlp_bias": (False, True),
    "tie_word_embeddings": (False, True),
    "head_dim": (None, 6, 10),
    "num_key_value_heads": (1, 2, 4),
    "hidden_act": ("silu", "gelu", "gelu_new", "relu"),
    "target_hidden_size": (None, 20),
    "draft_vocab_size": (VOCAB, 30),
    "ships an embedding": (False, True),
    "rope": tuple(_ROPES),
    "boundaries": (2, 3, 4),
}


@dataclass(frozen=True)
class _Case:
    """A draft's choices, by which it is written."""

    seed: int
    chosen: dict[str, Any]

    @classmethod
    def drawn(cls, seed: int) -> _Case:
        draw = random.Random(seed)  # noqa: S311
        chosen = {name: draw.choice(values) for name, values in _CHOICES.items()}
        if not chosen["use_aux_hidden_state"]:
            # The state after the final norm goes in as it is.
            chosen |= {"norm_before_fc": False, "fc_norm": False, "target_hidden_size": None, "boundaries": 1}
        if chosen["fc_norm"]:
            # A config with both is refused.
            chosen["norm_before_fc"] = False
        if chosen["draft_vocab_size"] != VOCAB:
            chosen["tie_word_embeddings"] = False
        return cls(seed, chosen)

    def write(self, folder: Path) -> Path:
        """Write the checkpoint: random weights, norms off one, and a map that is not the identity."""
        folder.mkdir(parents=True)
        special = ("use_aux_hidden_state", "ships an embedding", "rope", "boundaries")
        config = {key: value for key, value in self.chosen.items() if key not in special and value is not None}
        rope = _ROPES[self.chosen["rope"]]
        ids = list(range(1, 1 + self.chosen["boundaries"]))
        config |= {
            "architectures": ["LlamaForCausalLMEagle3"],
            "hidden_size": 24,
            "intermediate_size": 40,
            "num_attention_heads": 4,
            "num_hidden_layers": 1,
            "vocab_size": VOCAB,
            "max_position_embeddings": 256,
            "rms_norm_eps": 1e-5,
            "eagle_config": {
                "use_aux_hidden_state": self.chosen["use_aux_hidden_state"],
                "eagle_aux_hidden_state_layer_ids": ids,
            },
            **({"rope_scaling": rope} if rope else {}),
        }
        (folder / "config.json").write_text(json.dumps(config))
        generator = torch.Generator().manual_seed(self.seed)
        module_ = Eagle3Draft(read_draft_spec(folder), self.chosen["boundaries"])
        tensors = {
            name: torch.randn(tensor.shape, generator=generator, dtype=torch.float64) * 0.3 + ("norm" in name)
            for name, tensor in module_.state_dict().items()
        }
        if not self.chosen["ships an embedding"]:
            del tensors["embed_tokens.weight"]
        if self.chosen["tie_word_embeddings"]:
            del tensors["lm_head.weight"]
        size = self.chosen["draft_vocab_size"]
        targets = torch.randperm(VOCAB, generator=generator)[:size].sort().values
        tensors["d2t"] = targets - torch.arange(size)
        tensors["t2d"] = torch.zeros(VOCAB, dtype=torch.bool)
        tensors["t2d"][targets] = True
        safetensors.torch.save_file(tensors, folder / "model.safetensors")
        return folder


CASES_DRAWN = [_Case.drawn(seed) for seed in range(CASES)]


def _compare(folder: Path, boundaries: int, embedding: Tensor, tokens: list[int], states: Tensor) -> None:
    """Compare both drafts at every step, for chains of their own and of known tokens, in every way they are run."""
    draft = load_draft(
        read_draft_spec(folder), num_boundaries=boundaries, target_embedding=embedding, dtype=torch.float64
    )
    other = NumpyDraft(folder, embedding.numpy())
    np.testing.assert_allclose(draft.rotary.inv_freq.double().numpy(), other.frequencies, rtol=FREQUENCIES)
    np.testing.assert_allclose(draft.rotary.scaling, other.rope_factor, rtol=REST)
    other.frequencies = draft.rotary.inv_freq.double().numpy()
    prefix = other.prefix(tokens, states.numpy())
    following, fused = torch.tensor([tokens]), draft.fuse(states[None])
    _close(fused[0], prefix.fused)
    _close(ParallelChains(draft, following, states[None]).hidden[0], prefix.hidden)
    starts = (0, len(tokens) // 2, len(tokens) - 1)
    known = [tokens[(3 * step + 1) % len(tokens)] for step in range(STEPS)]
    for given in (None, known):
        expected = [other.chain(prefix, start, STEPS, given) for start in starts]
        chains = ParallelChains(draft, following, states[None], torch.tensor([starts]))
        for step in range(STEPS):
            if step:
                row = [one.tokens[step - 1] if given is None else given[step - 1] for one in expected]
                chains.step(torch.tensor([row]))
            logits = draft.logits(chains.hidden)
            _close(chains.hidden[0], np.stack([one.hidden[step] for one in expected]))
            _close(logits[0], np.stack([one.logits[step] for one in expected]))
            assert draft.to_target(logits.argmax(-1))[0].tolist() == [one.tokens[step] for one in expected]
    for start in starts:
        expected_chain = other.chain(prefix, start, STEPS)
        seen = slice(0, start + 1)
        proposed = propose(draft, DraftCache(draft, 1, 64), following[:, seen], states[None, seen], 0, STEPS)
        _close(proposed.logits[0], expected_chain.logits)
        assert proposed.chain[0].tolist() == expected_chain.tokens
        # Both rows at positions of their own, as after a round of a batch.
        ragged = DraftCache(draft, 2, 64)
        positions = torch.arange(start + 1).expand(2, -1)
        rows = following[:, seen].expand(2, -1)
        _close(ragged.run_ragged(rows, fused[:, seen].expand(2, -1, -1), positions)[1], prefix.hidden[seen])


def _close(ours: Tensor, theirs: Any) -> None:
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=REST, atol=REST)


def _inputs(case: _Case) -> tuple[int, Tensor, list[int], Tensor]:
    generator = torch.Generator().manual_seed(1000 + case.seed)
    width = (case.chosen["target_hidden_size"] or 24) * case.chosen["boundaries"]
    embedding = torch.randn(VOCAB, 24, generator=generator, dtype=torch.float64)
    tokens = torch.randint(0, VOCAB, (LENGTH,), generator=generator).tolist()
    states = 2 * torch.randn(LENGTH, width, generator=generator, dtype=torch.float64)
    return case.chosen["boundaries"], embedding, tokens, states


@pytest.mark.parametrize("case", CASES_DRAWN, ids=lambda case: str(case.seed))
@torch.inference_mode()
def test_a_random_draft(case: _Case, tmp_path: Path) -> None:
    _compare(case.write(tmp_path / "draft"), *_inputs(case))


def test_every_choice_was_drawn() -> None:
    for name, values in _CHOICES.items():
        assert {case.chosen[name] for case in CASES_DRAWN} >= set(values), name


@pytest.mark.parametrize("name", ["tiny", "tiny-embedding"])
@torch.inference_mode()
def test_a_built_in_draft_on_real_states(name: str) -> None:
    pair = prepare(name, dtype="float64")
    loaded = load(pair)
    ids = list(load_prompts(pair)[0].ids)[:40]
    with loaded.target.capture(loaded.boundaries) as capture:
        loaded.target.forward(torch.tensor([ids]))
        states = capture.concatenated()[0, :-1]
    _compare(pair.draft.path, len(loaded.boundaries), loaded.target.embedding, ids[1:], states)


# One draft in which all of the faults below matter.
_EVERYTHING = _Case(
    7,
    {
        "use_aux_hidden_state": True,
        "norm_before_fc": False,
        "fc_norm": True,
        "norm_before_residual": False,
        "norm_output": True,
        "attention_bias": True,
        "mlp_bias": True,
        "tie_word_embeddings": False,
        "head_dim": 10,
        "num_key_value_heads": 2,
        "hidden_act": "silu",
        "target_hidden_size": 20,
        "draft_vocab_size": 30,
        "ships an embedding": True,
        "rope": "yarn",
        "boundaries": 3,
    },
)


def _state_first(layer: DraftLayer, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    return torch.cat((layer.hidden_norm(g), layer.input_layernorm(x)), dim=-1), g


def _residual_normed(layer: DraftLayer, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    normed = layer.hidden_norm(g)
    return torch.cat((layer.input_layernorm(x), normed), dim=-1), normed


def _slots_swapped(draft: Eagle3Draft, states: Tensor) -> Tensor:
    one, two, three = states.split(20, dim=-1)
    return cast(
        Tensor,
        draft.fc(torch.cat([norm(part) for norm, part in zip(draft.fc_norm, (two, one, three), strict=True)], dim=-1)),
    )


def _norm_of_slots_left_out(draft: Eagle3Draft, states: Tensor) -> Tensor:
    return cast(Tensor, draft.fc(states))


def _norm_without_weight(norm: RMSNorm, x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.eps)


def _norm_of_another_eps(norm: RMSNorm, x: Tensor) -> Tensor:
    return norm.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 2 * norm.eps)


def _pairs_of_neighbours(x: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = (part.unsqueeze(-2) for part in table)
    turned = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
    return x * cos + turned * sin


def _heads_in_another_order(right: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., tuple[Tensor, Tensor]]:
    def keys_values(layer: DraftLayer, inputs: Tensor, rope: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        keys, values = right(layer, inputs, rope)
        return keys.flip(2), values.flip(2)

    return keys_values


def _rope_not_scaled(right: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., tuple[Tensor, Tensor]]:
    def table(rotary: Rotary, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        cos, sin = right(rotary, positions, dtype)
        return cos / rotary.scaling, sin / rotary.scaling

    return table


def _positions_one_further(right: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., tuple[Tensor, Tensor]]:
    # Of the later positions only: attention sees differences of positions.
    def table(rotary: Rotary, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        return right(rotary, positions + (positions >= LENGTH - 1), dtype)

    return table


_FAULTS: dict[str, tuple[Any, str, Any]] = {
    "the state before the embedding": (DraftLayer, "attention_input", _state_first),
    "a residual after its norm": (DraftLayer, "attention_input", _residual_normed),
    "two slots swapped": (Eagle3Draft, "fuse", _slots_swapped),
    "no norm of the slots": (Eagle3Draft, "fuse", _norm_of_slots_left_out),
    "recycled before the norm": (Eagle3Draft, "recycle", lambda _draft, hidden: hidden),
    "no norm before the head": (Eagle3Draft, "logits", lambda draft, hidden: draft.lm_head(hidden)),
    "offsets of d2t taken off": (Eagle3Draft, "to_target", lambda draft, ids: ids - draft.d2t[ids]),
    "d2t left out": (Eagle3Draft, "to_target", lambda _draft, ids: ids),
    "steps that stay where they are": (Eagle3Draft, "step_positions", lambda _draft, starts, _step: starts),
    "a norm without its weight": (RMSNorm, "forward", _norm_without_weight),
    "another epsilon": (RMSNorm, "forward", _norm_of_another_eps),
    "neighbouring dimensions turned": (module, "rotate", _pairs_of_neighbours),
    "key heads in another order": (DraftLayer, "keys_values", _heads_in_another_order(DraftLayer.keys_values)),
    "cos and sin not scaled": (Rotary, "table", _rope_not_scaled(Rotary.table)),
    "late positions one further": (Rotary, "table", _positions_one_further(Rotary.table)),
}


@pytest.mark.parametrize("fault", _FAULTS)
@torch.inference_mode()
def test_a_fault_of_the_draft_is_seen(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, inputs = _EVERYTHING.write(tmp_path / "draft"), _inputs(_EVERYTHING)
    _compare(folder, *inputs)
    monkeypatch.setattr(*_FAULTS[fault])
    with pytest.raises(AssertionError):
        _compare(folder, *inputs)


def test_rounded_frequencies_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, inputs = _EVERYTHING.write(tmp_path / "draft"), _inputs(_EVERYTHING)
    right = Rotary.__init__

    def rounded(rotary: Rotary, *arguments: Any) -> None:
        right(rotary, *arguments)
        rotary.inv_freq = rotary.inv_freq.bfloat16().float()

    monkeypatch.setattr(Rotary, "__init__", rounded)
    with torch.inference_mode(), pytest.raises(AssertionError):
        _compare(folder, *inputs)
