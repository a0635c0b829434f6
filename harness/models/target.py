"""The target: a transformers causal language model, loaded whole or not at all."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from harness.errors import InputError
from harness.models.capture import BoundaryCapture, decoder_blocks
from harness.models.checkpoint import Header, check_finite, check_stored, read_headers, weight_files
from harness.models.placement import Placement, held_tensor, offloaded
from harness.models.precision import MOST_DEVIATION, deviation, exact
from harness.models.quantised import dequantise, settle_dequantised
from harness.pair.quiet import quiet
from harness.pair.target_spec import TargetSpec

__all__ = ["Target", "auto_class", "load_target", "some_ids"]

# Tokens on which a target is tried when it has been loaded.
_TRIED = 12

_ON_THE_CPU = Placement()


class Target:
    """A loaded target with its boundaries.

    Args:
        model: A transformers causal language model in evaluation mode.
        spec: Its shape.
        placement: Where it is; all on the device of its first weights if `None`.
    """

    def __init__(self, model: nn.Module, spec: TargetSpec, placement: Placement | None = None) -> None:
        self.model = model
        self.spec = spec
        self.dtype = cast(torch.dtype, model.dtype)
        self.device = cast(torch.device, model.device) if placement is None else torch.device(placement.device)
        self.notes = () if placement is None else tuple(placement.notes(model))
        # transformers 5.24 renamed past_key_values to cache.
        forward = inspect.signature(cast(Any, model).get_decoder().forward)
        self._cache_name = "cache" if "cache" in forward.parameters else "past_key_values"

    @property
    def embedding(self) -> Tensor:
        """The embedding table [vocab, H]."""
        return held_tensor(cast(Any, self.model).get_input_embeddings(), "weight")

    @property
    def config(self) -> Any:
        """The transformers config."""
        return cast(Any, self.model).config

    @property
    def full_attention(self) -> bool:
        """Whether every block attends to the whole past."""
        config = self.config.get_text_config()
        kinds = getattr(config, "layer_types", None)
        if kinds:
            return all(kind == "full_attention" for kind in kinds)
        return not (getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True))

    def capture(self, boundaries: tuple[int, ...]) -> BoundaryCapture:
        """Return a context manager that captures boundaries during forward calls."""
        return BoundaryCapture(self.model, self.spec.num_layers, boundaries, device=self.device)

    def forward(
        self,
        ids: Tensor,
        *,
        cache: object | None = None,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        keep: int = 0,
    ) -> Tensor:
        """Run the model.

        Args:
            ids: int64 [B, T].
            cache: A transformers cache, extended in place.
            mask: Additive attention mask [B, 1, T, L]; plain causal attention if `None`.
            positions: int64 [B, T]; continues the cache if `None`.
            keep: How many of the last positions get logits; 0 for all.

        Returns:
            Logits [B, keep or T, vocab].

        Raises:
            InputError: A logit is not a number. Its argmax would be token 0, and a draft that computes NaN too would
                always agree with it.
        """
        options: dict[str, Any] = {} if cache is None else {self._cache_name: cache}
        # By index: told a number, Gemma 4 runs its last blocks on those positions only, so states lack the others.
        kept = torch.arange(max(0, ids.shape[1] - keep), ids.shape[1], device=ids.device) if keep else 0
        with exact(self.dtype):
            output = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                use_cache=cache is not None,
                logits_to_keep=kept,
                **options,
            )
        logits = cast(Tensor, output.logits)
        if bool(logits.isnan().any()):
            raise _unusable(self.spec, logits)
        return logits


def load_target(spec: TargetSpec, *, dtype: torch.dtype, placement: Placement = _ON_THE_CPU) -> Target:
    """Load a target from its folder, each weight straight to its device.

    Args:
        spec: Its description.
        dtype: What it computes in. What transformers keeps in float32, such as rotary frequencies, stays so.
        placement: Where it is loaded to.

    Raises:
        InputError: The weights are missing, corrupt, incomplete, unknown, misshapen or not finite, are quantised in a
            way that is not known, or cannot be placed.
    """
    import transformers

    headers = read_headers(spec.path)
    _require_numbers([name for name, header in headers.items() if header.dtype.startswith("C")], headers)
    with _running(spec, "loaded"):
        config = transformers.AutoConfig.from_pretrained(str(spec.path), local_files_only=True, trust_remote_code=False)
        auto = auto_class(config)
    quantised = dequantise(config, spec.path / "config.json")
    if not quantised:
        with _running(spec, "loaded"), torch.device("meta"):
            skeleton = auto.from_config(config, trust_remote_code=False)
        _require_sizes(skeleton, headers)
    options = placement.options
    with _running(spec, "loaded"):
        model, info = auto.from_pretrained(
            str(spec.path),
            config=config,
            dtype=dtype,
            output_loading_info=True,
            local_files_only=True,
            use_safetensors=weight_files(spec.path)[0].suffix == ".safetensors",
            # Code that a checkpoint brings is never run, and the user is not asked about it.
            trust_remote_code=False,
            # So that wrong shapes are reported by us, with their names.
            ignore_mismatched_sizes=True,
            **options,
        )
    _check_names(info, headers, spec)
    if not quantised:
        names = (name for name, tensor in model.named_parameters() if name in headers and tensor.is_floating_point())
        _require_numbers([name for name in names if not headers[name].dtype.startswith(("F", "BF"))], headers)
    else:
        settle_dequantised(model, spec.path, headers, dtype)
    placement.require_usable(model)
    elsewhere = set(offloaded(model))
    for name, tensor in model.named_parameters():
        if name not in elsewhere:
            check_finite(name, tensor, headers[name].file if name in headers else spec.path)
    check_stored(spec.path, elsewhere)
    decoder_blocks(model, spec.num_layers)
    if not options:
        model = model.to(device=placement.device)
    if dtype == torch.float64:
        # Buffers too: rotary frequencies of a float64 model must be float64. In a narrower dtype they must not be cast,
        # since every position would be turned by another angle than in the engines.
        model = model.to(dtype=dtype)
    target = Target(model.eval().requires_grad_(False), spec, placement)
    _try(target)
    return target


def auto_class(config: Any) -> Any:
    """Return transformers' auto class for a config: a multimodal wrapper is loaded whole, though only text is run."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING as WRAPPERS

    return transformers.AutoModelForImageTextToText if type(config) in WRAPPERS else transformers.AutoModelForCausalLM


def _require_sizes(skeleton: nn.Module, headers: dict[str, Header]) -> None:
    """Refuse a config of other sizes than the weights before memory is taken for it: a slip can ask for terabytes.

    Tensors that transformers converts while it loads may have another shape in the file, but not another size.
    """
    for name, tensor in skeleton.named_parameters():
        if name in headers and math.prod(headers[name].shape) != tensor.numel():
            raise _misshapen(name, headers[name].shape, tuple(tensor.shape), headers[name].file)


def _misshapen(name: str, found: tuple[int, ...], expected: tuple[int, ...], file: Path) -> InputError:
    return InputError(
        "the tensor has another shape than the config says",
        file=file,
        key=name,
        found=list(found),
        expected=list(expected),
    )


def _check_names(info: dict[str, Any], headers: dict[str, Header], spec: TargetSpec) -> None:
    """Refuse weights that do not fit the config; `info` is what transformers found while loading them."""
    for name, found, expected in sorted(info.get("mismatched_keys") or ()):
        raise _misshapen(name, found, expected, headers[name].file if name in headers else spec.path)
    for kind, problem in (
        ("missing_keys", "the target's weights lack tensors"),
        ("unexpected_keys", "the target's weights contain tensors that its config does not have"),
    ):
        names = sorted(str(name) for name in info.get(kind) or ())
        if names:
            raise InputError(
                problem,
                file=headers[names[0]].file if names[0] in headers else weight_files(spec.path)[0],
                key=names[0],
                found=f"{len(names)}: {', '.join(names[:4])}",
                expected=f"the tensors that {spec.architecture} has by {spec.path / 'config.json'}",
                next_step="copy or download config and weights of one checkpoint",
            )


def _require_numbers(wrong: list[str], headers: dict[str, Header]) -> None:
    """Refuse tensors of a kind that weights do not have: transformers would simply convert them."""
    if wrong:
        header = headers[wrong[0]]
        raise InputError(
            "the tensor does not hold weights",
            file=header.file,
            key=wrong[0],
            found=header.dtype,
            expected="floating-point numbers",
        )


@torch.inference_mode()
def _try(target: Target) -> None:
    """Run the target on a few tokens, so that one that loads but cannot be measured is reported early."""
    spec = target.spec
    ids = some_ids(target, 1, _TRIED)
    with _running(spec, "run"), target.capture(tuple(range(spec.num_layers + 1))) as capture:
        logits = target.forward(ids)
        shapes = {tuple(capture.state(boundary).shape) for boundary in capture.boundaries}
        earlier = target.forward(ids[:, : _TRIED // 2])
    if logits.shape != (1, _TRIED, spec.vocab_size) or not bool(torch.isfinite(logits).all()):
        raise _unusable(spec, logits)
    expected = (1, _TRIED, spec.hidden_size)
    if shapes != {expected}:
        raise InputError(
            f"the blocks of {spec.architecture} do not pass on one hidden state for each token",
            file=spec.path,
            found=f"states of shape {' and '.join(str(list(shape)) for shape in sorted(shapes - {expected}))}",
            expected=f"shape {list(expected)}, of which the draft is given some",
            next_step="measure it by an engine that serves it, with --engine sglang or --endpoint",
        )
    if (differs := deviation(logits[:, : _TRIED // 2], earlier)) > MOST_DEVIATION[target.dtype]:
        raise InputError(
            f"{spec.architecture} computes other logits for a token if more tokens follow it, with this transformers",
            file=spec.path,
            found=f"a difference of {differs:.2g} of the logits' spread",
            expected=f"at most {MOST_DEVIATION[target.dtype]:g}",
            next_step="install another release of transformers",
        )


def some_ids(target: Target, rows: int, length: int) -> Tensor:
    """Return token ids, int64 [rows, length], to try a target on; the same each time."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(target.spec.vocab_size, (rows, length), generator=generator)
    return ids.to(target.device)


def _unusable(spec: TargetSpec, logits: Tensor) -> InputError:
    bad = int((~torch.isfinite(logits)).sum())
    return InputError(
        "the target does not compute usable logits",
        file=spec.path,
        found=f"shape {list(logits.shape)}, {bad} of {logits.numel()} not finite",
        expected=f"shape {[*logits.shape[:-1], spec.vocab_size]}, all finite",
        next_step='try engine.dtype = "float32"; float16 overflows first',
    )


@contextlib.contextmanager
def _running(spec: TargetSpec, what: str) -> Iterator[None]:
    """Report whatever transformers raises in the block as a fault of the checkpoint that it was given."""
    try:
        with quiet():
            yield
    except (torch.OutOfMemoryError, InputError):
        raise
    except Exception as error:
        raise InputError(
            f"the target cannot be {what}",
            file=spec.path,
            found=f"{type(error).__name__}: {error}",
            expected="a checkpoint that transformers can load and run as a language model",
            next_step="see the whole traceback with --debug",
        ) from error
