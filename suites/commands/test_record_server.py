"""Goldens of running servers: what they hold, how far a server may differ from itself, and what a check makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.commands.prepare import prepare
from harness.golden.store import load_golden
from suites.support.command import Command
from suites.support.faulty_server import Told, serving, told_by
from suites.support.random_pair import PAIR, SERVABLE, write_pair

# Enough rounds of six prompts that the margin is not passed by one of them.
WIDE = PAIR.replace("floor = 0.0", "floor = 0.0\nmargin = 0.05")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pair(tmp_path_factory.mktemp("served"), draft=SERVABLE, pair=WIDE).parent


@pytest.fixture(scope="module")
def told(folder: Path) -> Told:
    return told_by(prepare(folder / "random.pair.toml"))


@pytest.fixture
def pair(folder: Path) -> Path:
    """A pair without any golden."""
    golden = folder / "golden" / "random"
    for file in golden.glob("*") if golden.is_dir() else ():
        file.unlink()
    return folder / "random.pair.toml"


def test_a_server_is_recorded_and_passes_against_itself(pair: Path, told: Told, harness: Command) -> None:
    with serving(told) as server:
        done = harness("record", pair, "--endpoint", server.endpoint, "--json")
        assert done.status == 0, done.err
        # Once as the prompts are listed, twice in another order with an empty cache.
        assert server.flushed == 2
        streamed = [tuple(body["input_ids"]) for body in server.bodies if body.get("stream")]
        checked = harness("check", pair, "--endpoint", server.endpoint, "--json")
    assert sorted(streamed[:6]) == sorted(streamed[6:12]) == sorted(streamed[12:18])
    assert done.json["unfed"] == ["stages", "proposals", "likelihood"]
    assert any("does not feed stages, proposals, likelihood" in note for note in done.json["notes"])
    golden = load_golden(Path(done.json["golden"]))
    assert golden.file.name == "server-cpu-float32.json"
    document = golden.document
    assert document.runs == [
        "as listed, 16 prompts at once",
        "in another order, 16 prompts at once, with an empty prefix cache",
        "in another order, 8 prompts at once, with an empty prefix cache",
    ]
    assert all(prompt.again == [prompt.histogram] * 2 for prompt in document.prompts)
    assert (checked.status, checked.json["verdict"]) == (0, "pass")
    assert checked.json["golden"] == done.json["golden"]
    assert not any("compared with the margin" in note for note in checked.json["notes"])
    assert harness("golden", "verify", pair).status == 0
    shown = " ".join(harness("golden", "show", done.json["golden"]).out.split())
    assert "does not feed stages, proposals, likelihood" in shown


def test_a_server_that_accepts_less_than_its_golden_is_red(pair: Path, told: Told, harness: Command) -> None:
    with serving(told) as server:
        assert harness("record", pair, "--endpoint", server.endpoint).status == 0
    with serving(told, "accepts nothing without its cache") as server:
        server.flushed = 1
        checked = harness("check", pair, "--endpoint", server.endpoint, "--json")
    # Six prompts cannot claim a loss at the default alpha, and nothing says that there is none.
    assert checked.json["detectors"]["acceptance"]["drop"]["estimate"] > 0.05
    assert checked.status in (1, 3)


def test_a_server_that_differs_from_itself_a_little_carries_its_noise(pair: Path, told: Told, harness: Command) -> None:
    with serving(told, "accepts a little less without its cache") as server:
        done = harness("record", pair, "--endpoint", server.endpoint, "--json")
        assert done.status == 0, done.err
        checked = harness("check", pair, "--endpoint", server.endpoint, "--json")
    document = load_golden(Path(done.json["golden"])).document
    assert any(prompt.again[0] != prompt.histogram for prompt in document.prompts)
    drop = checked.json["detectors"]["acceptance"]["drop"]
    assert drop["estimate"] != 0
    assert drop["low"] <= 0 <= drop["high"] or abs(drop["estimate"]) < 0.05


def test_a_server_that_differs_from_itself_too_much_is_refused(pair: Path, told: Told, harness: Command) -> None:
    with serving(told, "accepts nothing without its cache") as server:
        outcome = harness("record", pair, "--endpoint", server.endpoint)
    assert outcome.status == 2
    assert "differs from itself by more than the margin of the gate" in outcome.err
    assert "rate 0.0000 in another order" in outcome.err
    assert not (pair.parent / "golden" / "random" / "server-cpu-float32.json").exists()


def test_texts_that_differ_are_no_reason_to_refuse(pair: Path, told: Told, harness: Command) -> None:
    """Near-ties turn out differently in other batches: counts decide, never texts."""
    with serving(told, "decodes otherwise each time") as server:
        assert harness("record", pair, "--endpoint", server.endpoint).status == 0


def test_a_server_that_keeps_its_prefixes_is_recorded_and_it_is_said(pair: Path, told: Told, harness: Command) -> None:
    with serving(told, "keeps its prefixes") as server:
        done = harness("record", pair, "--endpoint", server.endpoint, "--json")
    runs = load_golden(Path(done.json["golden"])).document.runs
    assert runs[1] == "in another order, 16 prompts at once, its prefix cache kept"


def test_an_endpoint_in_the_pair_file_is_recorded_with_the_command_that_a_check_proposes(
    folder: Path, told: Told, harness: Command
) -> None:
    file = folder / "served.pair.toml"
    text = WIDE.replace('"random"', '"served"').replace(
        "[decode]", '[engine]\nname = "server"\nendpoint = "URL"\n[decode]'
    )
    with serving(told) as server:
        file.write_text(text.replace("URL", server.endpoint))
        refused = harness("check", file)
        assert refused.status == 2
        assert refused.err.rstrip().endswith(f"Next: harness record {file}.")
        assert harness("record", file).status == 0
        assert harness("check", file).status == 0


def test_a_check_of_another_engine_falls_back_with_the_margin(pair: Path, told: Told, harness: Command) -> None:
    with serving(told) as server:
        refused = harness("check", pair, "--endpoint", server.endpoint)
        assert refused.err.rstrip().endswith(f"Next: harness record {pair} --endpoint {server.endpoint}.")
        assert harness("record", pair).status == 0
        body = harness("check", pair, "--endpoint", server.endpoint, "--json").json
    assert Path(body["golden"]).name == "reference-cpu-float32.json"
    assert any("compared with the margin of 0.050" in note for note in body["notes"])


def test_modes_that_know_only_their_own_rounds_do_not_record(pair: Path, harness: Command) -> None:
    outcome = harness("record", pair, "--engine", "reference:batched")
    assert outcome.status == 2
    assert "the reference engine records by replay" in outcome.err
