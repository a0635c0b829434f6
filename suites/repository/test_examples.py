"""The example pair files for public pairs: read by our own reader, their stated ids translated by our own facts."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.engines.sglang.allowed import require_allowed
from harness.errors import InputError
from harness.facts.layer_ids import read_ids
from harness.pair.builtin import find_prompts
from harness.pair.pairfile import PairFile, read_pair_file
from suites.support.builtin_pairs import ROOT

FOLDER = ROOT / "examples" / "pairs"
FILES = sorted(FOLDER.glob("*.pair.toml"))


@dataclass(frozen=True)
class Facts:
    """What the head of an example file states."""

    architecture: str
    blocks: int
    ids: list[int] | None
    boundaries: list[int]
    served: dict[str, list[int]]

    def read(self, convention: str) -> list[int]:
        """Return the ids as a convention reads them."""
        reading = read_ids(self.ids, convention, num_layers=self.blocks, architecture=self.architecture)
        return list(reading.boundaries)


def facts_of(file: Path) -> Facts:
    text = file.read_text(encoding="utf-8")

    def stated(key: str) -> str:
        (value,) = re.findall(rf"^# {key} +(.+)$", text, re.MULTILINE)
        return str(value)

    architecture, blocks = stated("target").removesuffix(" blocks").split(", ")
    ids = stated("ids")
    served = dict(re.findall(r"^# (sglang==\S+) +(\[.+\])$", text, re.MULTILINE))
    return Facts(
        architecture,
        int(blocks),
        None if ids == "none" else json.loads(ids),
        json.loads(stated("boundaries")),
        {name: json.loads(value) for name, value in served.items()},
    )


@pytest.fixture(params=FILES, ids=lambda file: file.name.removesuffix(".pair.toml"))
def file(request: pytest.FixtureRequest) -> Path:
    assert isinstance(request.param, Path)
    return request.param


@pytest.fixture
def settings(file: Path) -> PairFile:
    return read_pair_file(file)


def test_each_family_that_is_promised_is_there() -> None:
    targets = {read_pair_file(file).target for file in FILES}
    assert targets == {
        "meta-llama/Llama-3.1-8B-Instruct",
        "Qwen/Qwen3-8B",
        "openai/gpt-oss-20b",
        "openai/gpt-oss-120b",
        "moonshotai/Kimi-K2.5",
    }


def test_the_stated_ids_are_the_stated_boundaries(file: Path, settings: PairFile) -> None:
    facts = facts_of(file)
    assert settings.trained_as is not None
    assert facts.read(settings.trained_as) == facts.boundaries
    for convention, boundaries in facts.served.items():
        assert facts.read(convention) == boundaries, convention


def test_what_sglang_runs_it_serves_as_trained(file: Path, settings: PairFile) -> None:
    facts = facts_of(file)
    if settings.engine.name == "sglang":
        assert facts.served["sglang==0.5.23"] == facts.boundaries
    else:
        # A speculators draft, for which SGLang has no class.
        assert not facts.served
        assert "speculator" in settings.draft


def test_the_other_reading_is_another_one() -> None:
    """What makes these two worth an example: a release, or a convention, that reads them wrongly."""
    kimi = facts_of(FOLDER / "kimi-k2.5.pair.toml")
    assert kimi.read("sglang==0.5.12") == [3, 31, 59]
    oss = facts_of(FOLDER / "gpt-oss-120b.pair.toml")
    for convention in ("modelopt", "sglang==0.5.16"):
        with pytest.raises(InputError, match="does not stand for a hidden state"):
            oss.read(convention)


def test_a_file_is_named_like_its_pair_and_runs_on_a_gpu(file: Path, settings: PairFile) -> None:
    assert file.name == f"{settings.name}.pair.toml"
    assert (settings.engine.device, settings.engine.dtype) == ("cuda", "bfloat16")
    assert settings.golden == "golden"


def test_its_arguments_may_be_set_by_a_pair_file(file: Path, settings: PairFile) -> None:
    require_allowed(settings.engine.args, file)


def test_its_prompts_are_built_in(file: Path, settings: PairFile) -> None:
    assert find_prompts(file, settings.prompts, file.parent / settings.prompts).suffix == ".jsonl"


def test_public_figures_are_called_another_prompt_set_and_add_up(file: Path, settings: PairFile) -> None:
    text = " ".join(line.lstrip("# ") for line in file.read_text(encoding="utf-8").splitlines())
    length = re.search(r"length (\d\.\d+)", text)
    if length is None:
        assert re.search(r"No public figure|Public figures: none", text)
        return
    assert "of another prompt set (MT-Bench" in text
    steps = settings.decode.num_steps
    assert f"K = {steps}" in text
    rate = re.search(r"a rate of (\d\.\d+)", text)
    assert rate is not None
    digits = len(rate[1]) - 2
    rates = re.search(r"position rates ([\d., ]+?), which", text)
    accepted = float(length[1]) - 1 if rates is None else sum(float(value) for value in rates[1].split(", "))
    assert accepted == pytest.approx(float(length[1]) - 1, abs=0.006)
    assert round(accepted / steps, digits) == float(rate[1])
    assert settings.gate.floor < accepted / steps


def test_the_readme_lists_every_file_with_its_draft_and_boundaries() -> None:
    readme = (FOLDER.parent / "README.md").read_text(encoding="utf-8")
    rows = [line for line in readme.splitlines() if line.startswith("| `")]
    assert len(rows) == len(FILES)
    for file in FILES:
        settings, facts = read_pair_file(file), facts_of(file)
        engine = settings.engine.name
        (row,) = [row for row in rows if row.startswith(f"| `{settings.name}` ")]
        assert f"| {settings.draft} |" in row
        assert f"| {facts.boundaries} | {engine} |" in row
