"""Capture, precision and the draft module, against transformers and against an independent computation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
import safetensors.torch
import torch
from torch import Tensor

from harness.engines.reference.draft_cache import DraftCache
from harness.errors import InputError
from harness.models.chains import ParallelChains
from harness.models.draft import Eagle3Draft, RMSNorm
from harness.models.draft_contract import check_headers, expected_tensors
from harness.models.draft_weights import load_draft
from harness.models.precision import exact
from harness.models.target import Target, load_target
from harness.pair.draft_spec import read_draft_spec
from harness.pair.target_spec import read_target_spec
from harness.testing import WRAPPERS, tiny_target
from suites.support.random_pair import LAYERS, VOCAB, WIDTH, write_draft, write_target


@pytest.fixture(scope="module")
def target64(tmp_path_factory: pytest.TempPathFactory) -> Target:
    folder = tmp_path_factory.mktemp("target")
    write_target(folder)
    return load_target(read_target_spec(folder), dtype=torch.float64)


def _ids(batch: int, length: int) -> Tensor:
    return torch.randint(0, VOCAB, (batch, length), generator=torch.Generator().manual_seed(5))


def test_boundaries_are_the_hidden_states_and_the_last_is_before_the_final_norm(target64: Target) -> None:
    ids = _ids(2, 11)
    with target64.capture(tuple(range(LAYERS + 1))) as capture, exact(torch.float64):
        output = target64.model(input_ids=ids, output_hidden_states=True)
    for boundary in range(LAYERS):
        torch.testing.assert_close(capture.state(boundary), output.hidden_states[boundary], rtol=0, atol=0)
    last = capture.state(LAYERS)
    assert (last - output.hidden_states[-1]).abs().max() > 0.1
    with exact(torch.float64):
        normed = target64.model.get_submodule("model.norm")(last)
    torch.testing.assert_close(normed, output.hidden_states[-1], rtol=0, atol=0)


def test_order_and_repetition_of_boundaries_are_kept(target64: Target) -> None:
    ids = _ids(1, 7)
    with target64.capture((3, 0, 3)) as capture:
        target64.forward(ids)
        parts = capture.concatenated().split(WIDTH, dim=-1)
        for part, boundary in zip(parts, (3, 0, 3), strict=True):
            assert torch.equal(part, capture.state(boundary))
    assert not torch.equal(parts[0], parts[1])


def test_captured_states_are_copies(target64: Target) -> None:
    with target64.capture((1,)) as capture:
        target64.forward(_ids(1, 5))
        first = capture.state(1)
        kept = first.clone()
        target64.forward(_ids(1, 6))
    assert torch.equal(first, kept)


@pytest.mark.parametrize("boundaries", [(-1, 1, 2), (0, 1, LAYERS + 1)])
def test_a_boundary_outside_the_target_is_refused(target64: Target, boundaries: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="the boundary does not exist"):
        target64.capture(boundaries)


def test_hooks_are_gone_after_the_block(target64: Target) -> None:
    blocks = list(target64.model.get_submodule("model.layers").children())

    def hooks() -> list[int]:
        return [len(block._forward_hooks) + len(block._forward_pre_hooks) for block in blocks]

    before = hooks()
    with target64.capture((0, 2)):
        assert hooks() != before
    assert hooks() == before


def test_float64_is_float64_throughout(target64: Target) -> None:
    """transformers' norms and rotary embeddings fall back to float32; under `exact` nothing does."""
    ids = _ids(1, 9)
    ours = target64.forward(ids)
    with torch.inference_mode():
        theirs = target64.model(input_ids=ids).logits
    assert ours.dtype == torch.float64
    assert 1e-8 < (ours - theirs).abs().max() < 1e-3
    norm: Any = target64.model.get_submodule("model.norm")
    x = torch.randn(3, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    by_hand = norm.weight * x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)
    with exact(torch.float64):
        torch.testing.assert_close(norm(x), by_hand, rtol=1e-14, atol=1e-14)
    assert (norm(x) - by_hand).abs().max() > 1e-9


def test_float32_is_left_alone() -> None:
    with exact(torch.float32):
        assert torch.zeros(1, dtype=torch.float64).float().dtype == torch.float32


def _draft(folder: Path, **changes: Any) -> Eagle3Draft:
    write_draft(folder, **changes)
    spec = read_draft_spec(folder)
    embedding = torch.randn(VOCAB, WIDTH, generator=torch.Generator().manual_seed(9))
    return load_draft(spec, num_boundaries=3, target_embedding=embedding, dtype=torch.float64)


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
    draft = _draft(tmp_path, **flags)
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
        draft = _draft(tmp_path / str(index), **flags)
        reference = _draft(tmp_path / "plain")
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
    draft = _draft(tmp_path)
    ids = torch.arange(draft.spec.draft_vocab_size)
    targets = draft.to_target(ids)
    assert not torch.equal(targets, ids)
    inverse = draft.from_target()
    assert torch.equal(inverse[targets], ids)
    assert int((inverse == -1).sum()) == VOCAB - draft.spec.draft_vocab_size


@pytest.mark.parametrize("prefix", ["midlayer.", "layers.0.", "model.layers.0."])
def test_both_key_styles_load_to_the_same_draft(tmp_path: Path, prefix: str) -> None:
    import safetensors.torch

    plain = _draft(tmp_path / "a")
    write_draft(tmp_path / "b")
    file = tmp_path / "b" / "model.safetensors"
    tensors = {name.replace("midlayer.", prefix): value for name, value in safetensors.torch.load_file(file).items()}
    safetensors.torch.save_file(tensors, file)
    other = load_draft(
        read_draft_spec(tmp_path / "b"),
        num_boundaries=3,
        target_embedding=plain.embed_tokens.weight,
        dtype=torch.float64,
    )
    for name, value in plain.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


def test_a_full_vocabulary_needs_no_map(tmp_path: Path) -> None:
    import safetensors.torch

    write_draft(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    del tensors["d2t"], tensors["t2d"]
    tensors["lm_head.weight"] = torch.randn(VOCAB, WIDTH)
    safetensors.torch.save_file(tensors, file)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"draft_vocab_size": 40', '"draft_vocab_size": null'))
    draft = load_draft(
        read_draft_spec(tmp_path), num_boundaries=3, target_embedding=torch.randn(VOCAB, WIDTH), dtype=torch.float32
    )
    ids = torch.arange(VOCAB)
    assert torch.equal(draft.to_target(ids), ids)


def test_the_drafts_own_embedding_wins(tmp_path: Path) -> None:
    import safetensors.torch

    write_draft(tmp_path)
    file = tmp_path / "model.safetensors"
    own = torch.randn(VOCAB, WIDTH)
    safetensors.torch.save_file(safetensors.torch.load_file(file) | {"embed_tokens.weight": own}, file)
    draft = load_draft(
        read_draft_spec(tmp_path), num_boundaries=3, target_embedding=torch.randn(VOCAB, WIDTH), dtype=torch.float32
    )
    assert torch.equal(draft.embed_tokens.weight, own)


def test_norm_keeps_its_input_dtype() -> None:
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        assert RMSNorm(8, 1e-6).to(dtype)(torch.ones(2, 8, dtype=dtype)).dtype == dtype


MLA: dict[str, Any] = {
    "architectures": ["Eagle3DeepseekV2ForCausalLM"],
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "vocab_size": VOCAB,
    "draft_vocab_size": 40,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
}


def test_the_tensors_of_latent_attention_are_deepseeks_but_for_the_double_input(tmp_path: Path) -> None:
    from transformers import DeepseekV3Config
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention

    (tmp_path / "config.json").write_text(json.dumps(MLA))
    expected = expected_tensors(read_draft_spec(tmp_path), 3)
    sizes = {key: value for key, value in MLA.items() if key not in ("architectures", "draft_vocab_size")}
    theirs = DeepseekV3Attention(DeepseekV3Config(**sizes, num_key_value_heads=4), 0).state_dict()
    ours = {
        name.removeprefix("midlayer.self_attn."): tuple(tensor.shape)
        for name, tensor in expected.items()
        if name.startswith("midlayer.self_attn.")
    }
    doubled = {"q_a_proj.weight", "kv_a_proj_with_mqa.weight"}
    assert ours == {
        name: (tensor.shape[0], 2 * WIDTH) if name in doubled else tuple(tensor.shape)
        for name, tensor in theirs.items()
    }


def test_a_latent_draft_is_checked_by_its_headers_and_refused_where_it_would_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MLA))
    spec = read_draft_spec(tmp_path)
    tensors = {name: torch.zeros(tensor.shape) for name, tensor in expected_tensors(spec, 3).items()}
    del tensors["embed_tokens.weight"]
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    assert check_headers(spec, 3)["fc.weight"] == (WIDTH, 3 * WIDTH)
    with pytest.raises(InputError, match="another shape"):
        check_headers(spec, 4)
    with pytest.raises(InputError, match="latent") as error:
        load_draft(spec, num_boundaries=3, target_embedding=torch.zeros(VOCAB, WIDTH), dtype=torch.float32)
    assert error.value.found == "Eagle3DeepseekV2ForCausalLM"
    del tensors["midlayer.self_attn.kv_b_proj.weight"]
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="lack tensors"):
        check_headers(spec, 3)


@pytest.mark.parametrize("architecture", WRAPPERS)
def test_a_multimodal_wrapper_is_loaded_and_its_text_model_captured(architecture: str, tmp_path: Path) -> None:
    model = cast(Any, tiny_target(architecture, layers=3))
    model.save_pretrained(tmp_path)
    spec = read_target_spec(tmp_path)
    assert (spec.architecture, spec.num_layers, spec.hidden_size) == (architecture, 3, 32)
    target = load_target(spec, dtype=torch.float32)
    ids = _ids(1, 7)
    with target.capture((0, 2, 3)) as capture:
        logits = target.forward(ids)
    expected = model(ids, output_hidden_states=True)
    assert torch.equal(capture.state(2), expected.hidden_states[2])
    assert torch.allclose(logits, expected.logits, atol=1e-5)
