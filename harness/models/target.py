"""The target: a transformers causal language model, loaded whole or not at all."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from harness.errors import InputError
from harness.models.capture import BoundaryCapture, decoder_blocks
from harness.models.checkpoint import check_finite, weight_files
from harness.models.precision import exact
from harness.pair.target_spec import TargetSpec

__all__ = ["Target", "load_target"]


class Target:
    """A loaded target with its boundaries.

    Args:
        model: A transformers causal language model in evaluation mode.
        spec: Its shape.
    """

    def __init__(self, model: nn.Module, spec: TargetSpec) -> None:
        self.model = model
        self.spec = spec
        self.dtype = cast(torch.dtype, model.dtype)
        self.device = cast(torch.device, model.device)
        # transformers 5.24 renamed past_key_values to cache.
        forward = inspect.signature(cast(Any, model).get_decoder().forward)
        self._cache_name = "cache" if "cache" in forward.parameters else "past_key_values"

    @property
    def embedding(self) -> Tensor:
        """The embedding table [vocab, H]."""
        return cast(Tensor, cast(Any, self.model).get_input_embeddings().weight)

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
        return BoundaryCapture(self.model, self.spec.num_layers, boundaries)

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
            mask: Additive attention mask [B, 1, T, L]; plain causal attention where it is `None`.
            positions: int64 [B, T]; continues the cache where it is `None`.
            keep: How many of the last positions get logits; 0 for all.

        Returns:
            Logits [B, keep or T, vocab].
        """
        options: dict[str, Any] = {} if cache is None else {self._cache_name: cache}
        with exact(self.dtype):
            output = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                use_cache=cache is not None,
                logits_to_keep=keep,
                **options,
            )
        return cast(Tensor, output.logits)


def load_target(spec: TargetSpec, *, dtype: torch.dtype, device: str = "cpu") -> Target:
    """Load a target from its folder.

    Raises:
        InputError: The weights are missing, corrupt, incomplete, unknown, misshapen or not finite.
    """
    import transformers

    files = weight_files(spec.path)
    model, info = _quietly(
        lambda: transformers.AutoModelForCausalLM.from_pretrained(
            str(spec.path), dtype=dtype, output_loading_info=True, local_files_only=True, use_safetensors=True
        ),
        spec,
    )
    for kind, problem in (
        ("missing_keys", "the target's weights lack tensors"),
        ("unexpected_keys", "the target's weights hold tensors that its config has no place for"),
        ("mismatched_keys", "the target's tensors have other shapes than its config says"),
    ):
        names = sorted(str(name) for name in info.get(kind) or ())
        if names:
            raise InputError(problem, file=files[0], key=names[0], found=f"{len(names)}: {', '.join(names[:4])}")
    for name, tensor in model.named_parameters():
        check_finite(name, tensor, files[0])
    decoder_blocks(model, spec.num_layers)
    # NumPy-style conversion of buffers too: rotary frequencies of a float64 model must be float64.
    return Target(model.to(device=device, dtype=dtype).eval().requires_grad_(False), spec)


def _quietly(load: Callable[[], Any], spec: TargetSpec) -> Any:
    """Run transformers' loader without its bars and reports; its findings are told by ours."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        return load()
    except Exception as error:
        raise InputError(
            "the target cannot be loaded",
            file=spec.path,
            found=f"{type(error).__name__}: {error}",
            expected="a checkpoint that transformers.AutoModelForCausalLM loads",
            next_step="see the whole traceback with --debug",
        ) from error
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
