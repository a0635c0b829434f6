"""A checkpoint's code under the real SGLang: it would be run unasked, and is not, since SGLang is not given it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.engines.base import Progress
from harness.engines.sglang.data_only import data_only
from harness.engines.sglang.engine import SglangEngine
from harness.engines.sglang.installed import engine_environment
from suites.sglang.serving import PATIENCE, reference, shorter
from suites.support.builtin_pairs import ROOT
from suites.support.coded_checkpoint import bring_code, marker_of
from suites.support.prompts import shortest

# As an engine does before it makes a model, for a target or a draft.
_RESOLVE = """
import sys
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.model_loader.utils import get_model_architecture
from sglang.srt.server_args import ServerArgs
arguments = ServerArgs(model_path=sys.argv[1], device="cpu", trust_remote_code=False, skip_tokenizer_init=True)
try:
    get_model_architecture(ModelConfig.from_server_args(arguments))
except Exception as error:
    print("RESOLVED", type(error).__name__, error)
"""


@pytest.mark.parametrize("given", [True, False], ids=["as the harness gives it", "as it is"])
def test_code_of_a_checkpoint_with_a_class_that_sglang_does_not_have(tmp_path: Path, given: bool) -> None:
    checkpoint = Path(shutil.copytree(ROOT / "fixtures" / "tiny" / "target", tmp_path / "target"))
    bring_code(checkpoint, architectures=["EvilForCausalLM"])
    folder = data_only(checkpoint, tmp_path / "data") if given else checkpoint
    environment = engine_environment("cpu", "") | {"HF_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", _RESOLVE, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert "Cannot find model module. 'EvilForCausalLM'" in done.stdout or not given, done.stderr
    assert marker_of(checkpoint).exists() is not given, done.stdout + done.stderr


def test_a_pair_whose_checkpoints_bring_code_is_served_without_it(tmp_path: Path) -> None:
    for name in ("tiny", "pairs"):
        shutil.copytree(ROOT / "fixtures" / name, tmp_path / name)
    pair = shorter(tmp_path / "pairs" / "tiny.pair.toml", 8)
    checkpoints = (pair.target.path, pair.draft.path)
    for folder in checkpoints:
        bring_code(folder)
    prompts = shortest(pair, 1)
    (record,) = SglangEngine(PATIENCE).run(pair, prompts, None, Progress()).records
    assert record.continuation == reference(pair, prompts)[0].continuation
    assert not [folder for folder in checkpoints if marker_of(folder).exists()]
