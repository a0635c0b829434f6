"""The built-in pairs: copies to be damaged, and runs of them with other wires."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.commands.prepare import prepare
from harness.counts.run import Run
from harness.engines.reference.loaded import load
from harness.engines.reference.replay import replay
from harness.engines.reference.threads import suitable_threads
from harness.engines.shared.decoded import as_run
from harness.golden.find import find_golden
from harness.golden.golden_class import DEFAULT
from harness.golden.store import load_golden
from harness.pair.pair import load_prompts

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "fixtures"
IDS_KEY = "eagle_aux_hidden_state_layer_ids"


def copy_pair(folder: Path, name: str = "tiny", *, ids: list[int] | None = None) -> Path:
    """Copy a built-in pair file and its draft; the target and the prompts stay where they are.

    Args:
        folder: Where to.
        name: The pair.
        ids: Layer ids for the copy's config.

    Returns:
        The copied pair file, its name and settings kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = (FIXTURES / "pairs" / f"{name}.pair.toml").read_text()
    draft = name.replace("tiny", "draft", 1)
    shutil.copytree(FIXTURES / "tiny" / draft, folder / "draft")
    text = text.replace(f'"../tiny/{draft}"', '"draft"').replace('"../tiny/', f'"{FIXTURES / "tiny"}/')
    file = folder / f"{name}.pair.toml"
    file.write_text(text)
    if ids is not None:
        config = read_config(folder / "draft")
        config["eagle_config"][IDS_KEY] = ids
        (folder / "draft" / "config.json").write_text(json.dumps(config))
    return file


def read_config(draft: Path) -> dict[str, Any]:
    """Return a draft's config."""
    config = json.loads((draft / "config.json").read_text())
    assert isinstance(config, dict)
    return config


def layer_ids(name: str = "tiny") -> list[int]:
    """Return the layer ids of a built-in pair's draft."""
    config = read_config(FIXTURES / "tiny" / name.replace("tiny", "draft", 1))
    return list(config["eagle_config"][IDS_KEY])


def replay_golden(name: str, boundaries: tuple[int, ...] | None = None, *, dtype: str = "float32") -> Run:
    """Replay a built-in pair's golden texts, with other boundaries than its own where they are given."""
    pair = prepare(name, dtype=dtype)
    golden = load_golden(find_golden(pair, DEFAULT))
    prompts = load_prompts(pair)
    texts = [golden.continuation(prompt.id) for prompt in prompts]
    with suitable_threads(pair):
        loaded = load(pair)
        rewired = loaded if boundaries is None else replace(loaded, boundaries=boundaries)
        records = replay(rewired, prompts, texts)
    return as_run(pair, records, "reference:replay", 0.0)
