"""What is recorded: only what can see a plain fault, without loops, resumed if interrupted, and only one's own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch

from harness.engines.reference.greedy import greedy_continuations
from harness.golden.store import load_golden
from suites.support.architectures import config_of, write_pair_of
from suites.support.builtin_pairs import ROOT
from suites.support.command import Command
from suites.support.damage import snapshot
from suites.support.random_pair import LIVE, PAIR, write_pair, write_prompts, write_target


def test_a_draft_that_does_not_read_the_target_is_refused(recorded: Path, harness: Command) -> None:
    file = recorded.parent / "draft/model.safetensors"
    tensors = safetensors.torch.load_file(file)
    tensors["fc.weight"].zero_()
    safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})
    before = snapshot(recorded.parent)
    outcome = harness("record", recorded, "--reason", "a new draft")
    assert outcome.status == 2
    assert "the pair is blind" in outcome.err
    # The pair's boundaries hold the last one, so the copy is moved down; the embedding stays.
    assert "found [0, 1, 3] look like [0, 2, 4]" in outcome.err
    assert snapshot(recorded.parent) == before


def test_a_golden_says_who_sees_the_fault(recorded: Path, harness: Command) -> None:
    body = harness("golden", "show", recorded, "--json").json
    assert 0 < body["standard_errors"]["rate"] < 0.1
    blindness = body["blindness"]
    assert blindness["boundaries"] == [0, 1, 3]
    assert "proposals" in blindness["seen_by"]
    text = " ".join(harness("golden", "show", recorded).out.split())
    assert "boundaries [0, 1, 3] are seen by proposals" in text


def _interrupted(*_arguments: object, **_options: object) -> None:
    raise KeyboardInterrupt


def test_texts_that_a_cache_spoiled_are_refused(
    recorded: Path, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spoiled text is FAKE: one in four tokens of the third prompt's is not the target's choice."""

    def spoiled(*arguments: Any, **options: Any) -> Any:
        found = options.pop("found", None) or arguments[4]
        texts = greedy_continuations(*arguments[:4], **options)
        texts[2] = tuple((token + 1) % LIVE if at % 4 == 3 else token for at, token in enumerate(texts[2]))
        for row, text in enumerate(texts):
            found(row, text)
        return texts

    before = snapshot(recorded.parent)
    monkeypatch.setattr("harness.engines.reference.engine.greedy_continuations", spoiled)
    outcome = harness("record", recorded, "--reason", "a test")
    assert outcome.status == 2
    assert "p2: the target, run over a text that was decoded with it, chooses other tokens" in outcome.err
    assert snapshot(recorded.parent) == before


def test_a_recurrent_target_is_recorded_with_its_own_texts(tmp_path: Path, harness: Command) -> None:
    file = write_pair_of(config_of("bamba"), tmp_path)
    write_prompts(tmp_path / "prompts.jsonl", (3, 9, 1, 17, 5, 30, 12, 8, 21, 4, 15, 6))
    outcome = harness("record", file, "--skip-loops")
    assert outcome.status == 0, outcome.err
    assert harness("check", file).status == 0


# Target seed 0 has one prompt of six whose continuation loops.
def _looping_pair(folder: Path, prompts: int = 12) -> Path:
    file = write_pair(folder, target_seed=0)
    write_prompts(folder / "prompts.jsonl", (3, 9, 1, 17, 5, 30, 12, 8, 21, 4, 15, 6)[:prompts])
    return file


def _decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count how many prompts each call of greedy decoding is given."""
    counts: list[int] = []

    def counting(target: Any, ids: Any, *arguments: Any, **options: Any) -> Any:
        counts.append(len(ids))
        return greedy_continuations(target, ids, *arguments, **options)

    monkeypatch.setattr("harness.engines.reference.engine.greedy_continuations", counting)
    return counts


def test_a_loop_is_refused_before_anything_is_replayed_and_what_was_decoded_is_kept(
    tmp_path: Path, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = _looping_pair(tmp_path)
    counts = _decoded(monkeypatch)

    def never(*_arguments: object, **_options: object) -> None:
        raise AssertionError("replayed")

    with monkeypatch.context() as early:
        early.setattr("harness.engines.reference.engine.replay_all", never)
        outcome = harness("record", file)
    assert outcome.status == 2
    assert "some continuations are loops" in outcome.err
    assert "--skip-loops" in outcome.err
    assert not (tmp_path / "golden").exists()
    done = harness("record", file, "--skip-loops", "--json")
    assert done.status == 0, done.err
    # Those that the refused record had decoded are not decoded again.
    assert counts[0] == 12
    assert counts[1] == 12 - done.json["resumed"] < 12
    assert done.json["left_out"]
    assert any("left out, as their continuations are loops" in note for note in done.json["notes"])


def test_a_left_out_prompt_is_in_the_golden_and_told_by_every_check(tmp_path: Path, harness: Command) -> None:
    file = _looping_pair(tmp_path)
    left_out = harness("record", file, "--skip-loops", "--json").json["left_out"]
    shown = harness("golden", "show", file, "--json").json
    assert [prompt["id"] for prompt in shown["left_out"]] == left_out
    assert all(prompt["repeated"] > 0.5 for prompt in shown["left_out"])
    assert not set(left_out) & {prompt["id"] for prompt in shown["by_prompt"]}
    checked = harness("check", file, "--json").json
    assert (checked["verdict"], checked["acceptance"]["prompts"]) == ("pass", 12 - len(left_out))
    assert any(
        f"prompts were left out when the golden was recorded: {', '.join(left_out)}" in note
        for note in checked["notes"]
    )
    assert harness("golden", "verify", file).status == 0
    alone = harness("check", file, "--prompts", left_out[0])
    assert alone.status == 2
    assert "left out when the golden was recorded" in alone.err


def test_a_left_out_prompt_that_is_another_now_is_not_passed_over(tmp_path: Path, harness: Command) -> None:
    file = _looping_pair(tmp_path)
    (left_out, *_) = harness("record", file, "--skip-loops", "--json").json["left_out"]
    lines = [json.loads(line) for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]
    for line in lines:
        if line["id"] == left_out:
            line["token_ids"] = [1, 2, 3]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    outcome = harness("check", file)
    assert outcome.status == 2
    assert f"does not have the prompt '{left_out}'" in outcome.err


def test_too_many_loops_cannot_be_skipped(tmp_path: Path, harness: Command) -> None:
    file = write_pair(tmp_path, target_seed=0, pair=PAIR.replace("max_new_tokens = 24", "max_new_tokens = 200"))
    outcome = harness("record", file, "--skip-loops")
    assert outcome.status == 2
    assert "but for at most 10% of 6 prompts" in outcome.err


def test_a_low_floor_is_found_before_noise_is_measured(
    tmp_path: Path, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_pair(tmp_path, pair=PAIR.replace("floor = 0.0", "floor = 0.9"))

    def never(*_arguments: object, **_options: object) -> None:
        raise AssertionError("noise was measured")

    monkeypatch.setattr("harness.engines.reference.engine.measure_noise", never)
    outcome = harness("record", file)
    assert outcome.status == 2
    assert "below the floor" in outcome.err


def test_an_interrupted_record_goes_on_from_what_it_had_decoded(
    tmp_path: Path, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_pair(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr("harness.engines.reference.engine.replay_all", _interrupted)
        assert harness("record", file).status == 130
    counts = _decoded(monkeypatch)
    body = harness("record", file, "--json").json
    assert (counts, body["resumed"]) == ([0], 6)
    resumed = load_golden(Path(body["golden"]))
    # A golden has the texts now, and the next record decodes for itself.
    body = harness("record", file, "--reason", "from scratch", "--json").json
    assert (counts, body["resumed"]) == ([0, 6], 0)
    assert load_golden(Path(body["golden"])).document.tensors == resumed.document.tensors


@pytest.mark.parametrize("change", ["weights", "generation config", "limit", "dtype"])
def test_texts_of_another_target_are_not_resumed(
    tmp_path: Path, harness: Command, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    file = write_pair(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr("harness.engines.reference.engine.replay_all", _interrupted)
        assert harness("record", file).status == 130
    options = []
    if change == "weights":
        write_target(tmp_path / "target", seed=4)
    elif change == "generation config":
        config = tmp_path / "target" / "generation_config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"eos_token_id": 63}))
    elif change == "limit":
        file.write_text(file.read_text().replace("max_new_tokens = 24", "max_new_tokens = 20"))
    else:
        options = ["--dtype", "float64"]
    done = harness("record", file, "--skip-loops", "--json", *options)
    assert done.status == 0, done.err
    assert done.json["resumed"] == 0


def test_a_cache_that_cannot_be_written_or_read_changes_nothing(
    tmp_path: Path, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file, not a folder")
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    file = write_pair(tmp_path / "pair")
    assert harness("record", file).status == 0


def test_a_built_in_pair_is_not_recorded_into_the_installation(
    tmp_path: Path, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site-packages" / "harness" / "builtin"
    for name in ("fixtures/pairs", "fixtures/tiny", "golden/tiny"):
        shutil.copytree(ROOT / name, site / name)
    for module in ("harness.pair.builtin", "harness.golden.find", "harness.commands.record"):
        monkeypatch.setattr(f"{module}.builtin_root", lambda: site)
    before = snapshot(site)
    outcome = harness("record", "tiny", "--reason", "mine")
    assert outcome.status == 2
    assert "belongs to the installation" in outcome.err
    assert f"cp -r {site} my-pairs" in outcome.err
    assert "harness record my-pairs/fixtures/pairs/tiny.pair.toml" in outcome.err
    assert snapshot(site) == before
