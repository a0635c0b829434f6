"""Model files of an SGLang release, written here: a decoder with its capture loop, and the setter of its class."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from harness.facts.reading.setters import run_setter
from harness.facts.reading.sources import SglangSources, read_sources
from harness.facts.sglang import LAST

LIST_LOOP = """
    def forward(self, input_ids):
        aux = AuxHiddenStateList()
        for i in range(self.start_layer, self.end_layer):
            hidden = self.layers[i](hidden, capture_output=aux.capture if i in self.layers_to_capture else None)
        return hidden, aux
"""
FLAG_LOOP = """
    def forward(self, input_ids):
        aux = AuxHiddenStateList()
        for i in range(self.start_layer, self.end_layer):
            layer = self.layers[i]
            hidden = layer(hidden, captured=aux if getattr(layer, "_is_layer_to_capture", False) else None)
        return hidden, aux
"""
FLAG_SETTER = """
    def set_eagle3_layers_to_capture(self, layers_to_capture: list[int]):
        self.layers_to_capture = layers_to_capture
        for layer_id in self.layers_to_capture:
            setattr(self.layers[layer_id], "_is_layer_to_capture", True)
"""
PLUS_ONE = "[val + 1 for val in layer_ids]"


def write_setter(
    given: str = PLUS_ONE, default: str = "[2, num_layers // 2, num_layers - 3]", call: bool = False
) -> str:
    told = "self.model.set_eagle3_layers_to_capture({})" if call else "self.model.layers_to_capture = {}"
    return f"""
    def set_eagle3_layers_to_capture(self, layer_ids: Optional[List[int]] = None):
        if not get_parallel().pp_group.is_last_rank or not self.pp_group.is_last_rank:
            return
        self.capture_aux_hidden_states = True
        if layer_ids is None:
            num_layers = self.config.num_hidden_layers
            {told.format(default)}
        else:
            {told.format(given)}
"""


def write_model(
    name: str, setter: str, loop: str = LIST_LOOP, *, decoder_extra: str = "", decoder: str = "Decoder"
) -> str:
    return f"""
class {decoder}(nn.Module):
    def __init__(self, config):
        self.layers_to_capture = []
{decoder_extra}
{loop}

class {name}(nn.Module):
    def __init__(self, config):
        self.config = config
        self.model = {decoder}(config)
{setter}

EntryClass = {name}
"""


def write_release(folder: Path, version: str = LAST, **models: str) -> Path:
    package = folder / "sglang"
    (package / "srt" / "models").mkdir(parents=True, exist_ok=True)
    (package / "_version.py").write_text(f"__version__ = version = '{version}'\n")
    for name, text in models.items():
        (package / "srt" / "models" / f"{name}.py").write_text(textwrap.dedent(text))
    return folder


def read_release(folder: Path, version: str = LAST, **models: str) -> SglangSources:
    return read_sources(write_release(folder, version, **models))


def run_first_setter(sources: SglangSources, ids: list[int] | None, name: str | None = None) -> Any:
    classes = {cls.name: cls for cls in sources.capturing_classes()}
    return run_setter(sources, classes[name] if name else next(iter(classes.values())), ids, 8)


LLAMA = write_model("LlamaForCausalLM", write_setter())
