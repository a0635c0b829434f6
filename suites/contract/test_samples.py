"""A run captures the states that training samples of the same target contain, in all four formats.

The samples are made from transformers' own `hidden_states`, as data generation makes them, rather than by the capture
that they are compared with.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from harness.errors import InputError
from harness.facts.layer_ids import read_ids
from harness.samples.formats import FORMATS, Sample, read_sample, write_sample
from harness.testing import LayerCase, architectures, layer_ids, tiny_target
from suites.contract.properties import capture, ids_of, states

# The convention of the layer ids behind the samples of each format.
WRITERS = {
    "speculators-v0": "eagle",
    "speculators-v1": "speculators==0.3",
    "speculators": "speculators==0.4",
    "specforge": "specforge",
}


def _written(case: LayerCase, form: str, text: Tensor) -> Sample:
    """Return the sample that data generation makes of a text [1, S]."""
    hidden = states(case, text)
    model = tiny_target(case.architecture, layers=case.num_layers)
    before_norm = capture(model, text, (case.num_layers,))
    aux = [before_norm if boundary == case.num_layers else hidden[boundary] for boundary in case.boundaries]
    last = hidden[-1] if FORMATS[form].last_normed else before_norm
    return Sample(text[0], torch.cat(aux, dim=-1)[0], last[0], None)


@pytest.mark.parametrize("form", FORMATS)
@given(data=st.data(), architecture=architectures(), layers=st.integers(4, 6))
def test_a_run_captures_what_the_samples_hold(form: str, data: st.DataObject, architecture: str, layers: int) -> None:
    ids = data.draw(layer_ids(WRITERS[form], num_layers=layers, architecture=architecture))
    reading = read_ids(ids, WRITERS[form], num_layers=layers, architecture=architecture)
    case = LayerCase(architecture, layers, reading.boundaries)
    text = ids_of(rows=1)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"sample{FORMATS[form].suffix}"
        write_sample(file, _written(case, form, text), form)
        sample, found = read_sample(file)
    assert found.name == form
    model = tiny_target(architecture, layers=layers)
    served = capture(model, text, reading.boundaries)[0]
    assert torch.equal(sample.aux, served)
    assert torch.equal(sample.token_ids, text[0])
    norm = cast(Any, model).get_decoder().norm
    last = sample.last if found.last_normed else norm(sample.last)
    assert torch.allclose(last, states(case, text)[-1][0], atol=1e-5)


def test_the_default_ids_of_speculators_03_hold_four_states_of_which_fc_reads_three() -> None:
    """The founding incident: data generation had stored other boundaries than everybody believed."""
    layers = 8
    reading = read_ids(None, "speculators==0.3", num_layers=layers, architecture="LlamaForCausalLM")
    assert reading.boundaries == (3, 5, 6, 8)
    case = LayerCase("LlamaForCausalLM", layers, reading.boundaries[:-1])
    sample = _written(case, "speculators-v1", ids_of(rows=1))
    content = FORMATS["speculators-v1"].pack(sample)
    assert len(content["hidden_states"]) == 4
    eagle = read_ids(None, "eagle", num_layers=layers, architecture="LlamaForCausalLM").boundaries
    served = capture(tiny_target("LlamaForCausalLM", layers=layers), ids_of(rows=1), eagle)[0]
    assert eagle == (2, 4, 5)
    assert not any(torch.equal(one, other) for one, other in zip(sample.slots(), served.split(32, -1), strict=True))


def _sample() -> Sample:
    return Sample(torch.arange(5), torch.randn(5, 96), torch.randn(5, 32), torch.ones(5, dtype=torch.int64))


def test_the_batch_dimension_that_specforge_leaves_is_taken_off(tmp_path: Path) -> None:
    sample = _sample()
    content = FORMATS["specforge"].pack(sample)
    for name in ("aux_hidden_state", "hidden_state"):
        content[name] = content[name][None]
    torch.save(content, tmp_path / "sample.ckpt")
    assert torch.equal(read_sample(tmp_path / "sample.ckpt")[0].aux, sample.aux)


@pytest.mark.parametrize("form", [form for form in FORMATS if FORMATS[form].suffix != ".safetensors"])
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ("key", "format of the training sample is unknown"),
        ("short", "do not fit each other"),
        ("width", "do not fit each other"),
        ("nan", "not finite"),
        ("kind", "do not fit each other"),
        ("list", "is not a dictionary"),
        ("text", "cannot be read"),
    ],
)
def test_a_damaged_sample_is_told(form: str, damage: str, told: str, tmp_path: Path) -> None:
    sample = _sample()
    changed = {
        "short": Sample(sample.token_ids[:4], sample.aux, sample.last, sample.loss_mask),
        "width": Sample(sample.token_ids, sample.aux[:, :95], sample.last, sample.loss_mask),
        "nan": Sample(sample.token_ids, sample.aux * torch.nan, sample.last, sample.loss_mask),
    }.get(damage, sample)
    content: Any = FORMATS[form].pack(changed)
    if damage == "key":
        del content["input_ids"]
    elif damage == "kind":
        content["input_ids"] = "text"
    elif damage == "list":
        content = [1, 2]
    file = tmp_path / "sample.pt"
    torch.save(content, file)
    if damage == "text":
        file.write_text("no pickle")
    with pytest.raises(InputError, match=told):
        read_sample(file)
