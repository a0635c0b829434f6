"""Reading and writing training samples: four formats, recognised by their keys and converted to one shape.

A sample is one text: its token ids, the mask of those that count in the loss, the concatenated aux hidden states that
`fc` reads, and the target's last hidden state, from which the trainer computes the distribution to be learned. Shapes:
S tokens, L boundaries, H the target's hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from harness.errors import InputError, quote
from harness.files import replacing
from harness.models.checkpoint import check_finite

__all__ = ["FORMATS", "Sample", "SampleFormat", "read_sample", "write_sample"]


@dataclass(frozen=True)
class Sample:
    """One training sample.

    Attributes:
        token_ids: int64 [S].
        aux: [S, L * H]; the aux hidden states, concatenated in the order in which `fc` reads them.
        last: [S, H]; the target's last hidden state, before or after the final norm: see `SampleFormat.last_normed`.
        loss_mask: [S]; 1 for tokens that count in the loss; `None` if the format stores the mask elsewhere.
    """

    token_ids: Tensor
    aux: Tensor
    last: Tensor
    loss_mask: Tensor | None

    def slots(self) -> tuple[Tensor, ...]:
        """Return the aux hidden states one by one, each [S, H]."""
        return tuple(torch.split(self.aux, self.last.shape[-1], dim=-1))


Content = Mapping[str, Any]


@dataclass(frozen=True)
class SampleFormat:
    """The format in which a trainer writes samples.

    Attributes:
        name: Trainer and, if it matters, version of the format.
        keys: Keys of the file. A file is of the format with the most keys of which it has all.
        suffix: Suffix of the format's files.
        last_normed: Whether the last hidden state has passed the final norm. If it has, the trainer applies the head
            to it directly; other trainers apply the norm first.
        source: The source code that these facts were read from.
        pack: Converts a sample to the content of a file.
        unpack: Converts back; raises a built-in exception if the content is malformed.
    """

    name: str
    keys: tuple[str, ...]
    suffix: str
    last_normed: bool
    source: str
    pack: Callable[[Sample], dict[str, Any]]
    unpack: Callable[[Content], Sample]


def _mask(sample: Sample) -> Tensor:
    return torch.ones_like(sample.token_ids) if sample.loss_mask is None else sample.loss_mask


def _unbatched(tensor: Tensor) -> Tensor:
    """Return [S, W] from [S, W], or from [1, S, W]: SpecForge's data generation keeps the batch dimension."""
    return tensor[0] if tensor.dim() == 3 and tensor.shape[0] == 1 else tensor


def _from_layers(layers: Tensor | list[Tensor], token_ids: Tensor, loss_mask: Tensor | None) -> Sample:
    """Return a sample from a list of states, of which the last one is the target's last hidden state."""
    states = list(layers.unbind(1)) if isinstance(layers, Tensor) else layers
    return Sample(token_ids, torch.cat(states[:-1], dim=-1), states[-1], loss_mask)


FORMATS: dict[str, SampleFormat] = {
    form.name: form
    for form in (
        SampleFormat(
            "speculators-v0",
            ("hidden_state", "target", "input_ids", "loss_mask"),
            ".pt",
            last_normed=True,
            source="speculators, train/data.py: standardize_data_v0",
            pack=lambda sample: {
                "input_ids": sample.token_ids,
                "loss_mask": _mask(sample),
                "hidden_state": sample.aux,
                "target": sample.last,
            },
            unpack=lambda content: Sample(
                content["input_ids"], content["hidden_state"], content["target"], content["loss_mask"]
            ),
        ),
        SampleFormat(
            "speculators-v1",
            ("hidden_states", "input_ids", "loss_mask"),
            ".pt",
            last_normed=False,
            source="speculators 0.1 to 0.3, train/data.py: standardize_data_v1",
            pack=lambda sample: {
                "input_ids": sample.token_ids,
                "loss_mask": _mask(sample),
                "hidden_states": [*(slot.clone() for slot in sample.slots()), sample.last],
            },
            unpack=lambda content: _from_layers(content["hidden_states"], content["input_ids"], content["loss_mask"]),
        ),
        SampleFormat(
            "speculators",
            ("hidden_states", "token_ids"),
            ".safetensors",
            last_normed=False,
            source="speculators 0.9, train/data.py: hidden_states[:, :-1] and [:, -1]",
            pack=lambda sample: {
                "hidden_states": torch.stack([*sample.slots(), sample.last], dim=1),
                "token_ids": sample.token_ids,
            },
            unpack=lambda content: _from_layers(content["hidden_states"], content["token_ids"], None),
        ),
        SampleFormat(
            "specforge",
            ("aux_hidden_state", "hidden_state", "input_ids", "loss_mask"),
            ".ckpt",
            last_normed=True,
            source="SpecForge 0.2.0, data/preprocessing.py: process_offline_eagle3_sample",
            pack=lambda sample: {
                "input_ids": sample.token_ids,
                "loss_mask": _mask(sample),
                "hidden_state": sample.last,
                "aux_hidden_state": sample.aux,
            },
            unpack=lambda content: Sample(
                content["input_ids"],
                _unbatched(content["aux_hidden_state"]),
                _unbatched(content["hidden_state"]),
                content["loss_mask"],
            ),
        ),
    )
}


def write_sample(path: Path, sample: Sample, form: str) -> None:
    """Write a sample in the format of that name.

    Raises:
        InputError: The file cannot be written.
    """
    content = FORMATS[form].pack(sample)
    with replacing(path) as part:
        if FORMATS[form].suffix == ".safetensors":
            safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in content.items()}, part)
        else:
            torch.save(content, part)


def read_sample(path: Path) -> tuple[Sample, SampleFormat]:
    """Read a sample and recognise its format.

    Raises:
        InputError: The file is missing or damaged, has an unknown format, or has tensors that do not fit each other.
    """
    content = _load(path)
    form = _recognised(content, path)
    try:
        sample = form.unpack(content)
        tokens, width = sample.token_ids.shape[0], sample.last.shape[-1]
        fits = (
            sample.token_ids.dim() == 1
            and sample.aux.shape[:-1] == sample.last.shape[:-1] == (tokens,)
            and sample.aux.shape[-1] % width == 0
            and sample.aux.shape[-1] > 0
            and (sample.loss_mask is None or sample.loss_mask.shape == (tokens,))
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, ZeroDivisionError) as error:
        raise _misfit(path, form, f"{type(error).__name__}: {error}") from None
    if not fits:
        shapes = {"token ids": sample.token_ids, "aux": sample.aux, "last": sample.last}
        raise _misfit(path, form, ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in shapes.items()))
    for name, tensor in (("aux hidden states", sample.aux), ("last hidden state", sample.last)):
        check_finite(name, tensor, path)
    return sample, form


def _load(path: Path) -> Content:
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 - a damaged pickle may raise anything, and one with code is refused
        raise InputError(
            "the training sample cannot be read",
            file=path,
            found=str(error).split("\n")[0],
            expected="a file that torch.save or safetensors has written",
        ) from None
    if not isinstance(content, dict):
        raise InputError(
            "the training sample is not a dictionary", file=path, found=type(content).__name__, expected=_expected()
        )
    return content


def _recognised(content: Content, path: Path) -> SampleFormat:
    # Most keys first: SpecForge's samples also have keys by which other formats are recognised.
    for form in sorted(FORMATS.values(), key=lambda form: -len(form.keys)):
        if all(key in content for key in form.keys):
            return form
    raise InputError(
        "the format of the training sample is unknown",
        file=path,
        found=quote(sorted(map(str, content))),
        expected=_expected(),
    )


def _misfit(path: Path, form: SampleFormat, found: str) -> InputError:
    return InputError(
        f"the tensors of the training sample do not fit each other, read as {form.name}",
        file=path,
        found=found,
        expected="S token ids, aux hidden states [S, L * H] and a last hidden state [S, H]",
        next_step="generate the sample again, with a single version of the trainer",
    )


def _expected() -> str:
    return " or ".join(f"{form.name} ({', '.join(form.keys)})" for form in FORMATS.values())
