"""A checkpoint that brings code along, and wants it run wherever a library would: a marker shows whether it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["bring_code", "marker_of"]

# Each auto class that a config, a tokenizer's config or a processor's can name.
_CLASSES = ("AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoTokenizer", "AutoProcessor", "AutoImageProcessor")
_CONFIGS = ("config.json", "tokenizer_config.json", "preprocessor_config.json", "processor_config.json")


def marker_of(folder: Path) -> Path:
    """Return the file that the code of a checkpoint makes when it is run."""
    return folder.with_name(f"{folder.name}-ran")


def bring_code(folder: Path, **changes: Any) -> None:
    """Add a module to a checkpoint, and name its classes wherever one can be named.

    Args:
        folder: The checkpoint.
        **changes: Further keys of its `config.json`.
    """
    code = f"open({str(marker_of(folder))!r}, 'w').close()\n"
    code += "".join(f"class Evil{name}: pass\n" for name in _CLASSES)
    (folder / "evil.py").write_text(code)
    for name in _CONFIGS:
        file = folder / name
        content = json.loads(file.read_text()) if file.is_file() else {}
        classes: dict[str, Any] = {kind: f"evil.Evil{kind}" for kind in _CLASSES}
        if name == "tokenizer_config.json":
            classes["AutoTokenizer"] = ["evil.EvilAutoTokenizer", "evil.EvilAutoTokenizer"]
        content["auto_map"] = classes
        if name == "config.json":
            content |= changes
        file.write_text(json.dumps(content))
