"""vLLM by its sums: read out of /metrics, judged by the floor alone, and refused where others are in them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from harness.cli.app import main
from harness.commands.check import check
from harness.commands.measure import measure
from harness.commands.prepare import prepare
from harness.engines.server.metrics import read_sums
from harness.report.bodies.base import plain
from harness.report.bodies.check import check_body
from suites.support.command import Command
from suites.support.fake_vllm import FakeVllm, serving_vllm
from suites.support.random_pair import PAIR, write_pair
from suites.support.schemas import require_valid


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded pair whose ids are boundaries, as vLLM reads them."""
    folder = tmp_path_factory.mktemp("servable")
    ids = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 3], "use_aux_hidden_state": True}}
    file = write_pair(folder, draft=ids, pair=PAIR.replace('"specforge"', '"vllm"'))
    assert main(["record", str(file), "--json"]) == 0
    return folder


@pytest.fixture
def recorded(folder: Path, tmp_path: Path) -> Path:
    """The pair file of a fresh copy of it."""
    shutil.copytree(folder, tmp_path / "pair")
    return tmp_path / "pair" / "random.pair.toml"


def test_the_text_of_metrics_is_read() -> None:
    server = FakeVllm()
    sums = read_sums(server.metrics())
    assert (sums.requests, sums.generated, sums.running) == (7 + 42, 1000, 0)
    assert (sums.drafts, sums.proposed, sums.accepted) == (5, 20, 12)
    assert sums.reached == (4, 3, 3, 2)
    assert sums.histogram() == (1, 1, 0, 1, 2)
    server.complete()
    added = read_sums(server.metrics()).since(sums)
    assert (added.requests, added.generated, added.drafts) == (1, 17, 5)
    assert added.histogram() == (1, 1, 1, 0, 2)


def test_several_engines_of_one_server_are_summed() -> None:
    text = FakeVllm().metrics()
    assert read_sums(text + text.replace('engine="0"', 'engine="1"')).reached == (8, 6, 6, 4)


def test_measure_adds_up_what_the_prompts_added(recorded: Path, harness: Command) -> None:
    with serving_vllm() as server:
        outcome = harness("measure", recorded, "--endpoint", server.endpoint, "--json")
        prompts = [body["prompt"] for body in server.bodies]
    assert outcome.status == 0
    body = outcome.json
    assert body["aggregate"] == [6, 6, 6, 0, 12]
    acceptance = body["acceptance"]
    assert (acceptance["rounds"], acceptance["accepted"], acceptance["proposed"]) == (30, 66, 120)
    assert acceptance["rate"] == pytest.approx(0.55)
    assert acceptance["length"] == pytest.approx(3.2)
    assert acceptance["prompts"] == 6
    assert acceptance["standard_errors"]["rate"] is None
    assert body["categories"] == {}
    assert body["server"] == {
        "endpoint": server.endpoint,
        "engine": "vllm",
        "version": "0.11.2",
        "model_path": "target",
    }
    assert any("the floor alone decides" in note for note in body["notes"])
    ids = [json.loads(line)["token_ids"] for line in (recorded.parent / "prompts.jsonl").read_text().splitlines()]
    assert sorted(prompts) == sorted(ids)


@pytest.mark.parametrize(
    ("rounds", "floor", "state", "status"),
    [
        ((4, 4, 4, 4, 4), 0.70, "pass", 0),
        ((0, 0, 0, 1, 0), 0.70, "regression", 1),
        ((4, 4, 2, 2, 2), 0.70, "inconclusive", 3),
    ],
)
def test_the_floor_alone_is_judged(
    recorded: Path, rounds: tuple[int, ...], floor: float, state: str, status: int
) -> None:
    recorded.write_text(recorded.read_text().replace("floor = 0.0", f"floor = {floor}"))
    with serving_vllm(rounds=rounds) as server:
        result = check(prepare(recorded, endpoint=server.endpoint))
    finding = result.findings["acceptance"]
    assert (str(finding.state), result.exit_code) == (state, status)
    assert f"the floor {floor:.2f} alone is judged" in finding.message
    assert result.drop is None
    body = plain(check_body(result))
    require_valid("check", body)
    assert body["detectors"]["acceptance"]["golden_rate"] == result.golden.document.totals.rate
    others = {name: str(one.state) for name, one in result.findings.items() if name not in ("contract", "acceptance")}
    assert set(others.values()) == {"not_applicable"}
    assert result.pair.settings.served_by == "vllm"


FAULTS = {
    "is used by another client": (4, "counted 7 requests, but the harness' own are 6: other clients used the server"),
    "is busy": (4, "3 requests of other clients run"),
    "counters contradict each other": (4, "counters contradict each other: tokens accepted by position are 66"),
    "cuts its chains": (4, "rounds times 4 are 120, tokens proposed are 114"),
    "tells no usage": (4, "without usage.completion_tokens"),
    "writes what is no number": (4, "cannot be read"),
    "does not speculate": (2, "runs without speculation"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_paragraph(recorded: Path, harness: Command, fault: str) -> None:
    status, said = FAULTS[fault]
    with serving_vllm(fault) as server:
        outcome = harness("check", recorded, "--endpoint", server.endpoint)
        assert bool(server.bodies) == (fault not in ("is busy", "does not speculate"))
    assert outcome.status == status
    assert said in outcome.err
    assert server.endpoint in outcome.err
    assert outcome.err.count("\n") == 1


def test_another_length_is_refused(recorded: Path, harness: Command) -> None:
    with serving_vllm(steps=3, rounds=(3, 0, 1)) as server:
        outcome = harness("check", recorded, "--endpoint", server.endpoint)
        assert not server.bodies
    assert outcome.status == 2
    assert "num_speculative_tokens" in outcome.err
    assert "found 3, expected 4" in outcome.err


def test_a_pair_that_sglang_serves_is_refused(recorded: Path, harness: Command) -> None:
    recorded.write_text(f'served_by = "sglang==0.5.23"\n{recorded.read_text()}')
    with serving_vllm() as server:
        outcome = harness("measure", recorded, "--endpoint", server.endpoint)
    assert outcome.status == 2
    assert "served_by" in outcome.err


def test_sums_are_not_compared_prompt_by_prompt(recorded: Path, harness: Command) -> None:
    with serving_vllm() as server:
        outcome = harness("compare", recorded, recorded, "--endpoint-b", server.endpoint)
    assert outcome.status == 2
    assert "only sums over all prompts" in outcome.err


def test_a_saved_result_of_sums_is_not_measured_in_a_comparison(
    recorded: Path, tmp_path: Path, harness: Command
) -> None:
    with serving_vllm() as server:
        saved = tmp_path / "sums.json"
        saved.write_text(harness("measure", recorded, "--endpoint", server.endpoint, "--json").out)
    outcome = harness("compare", recorded, saved, "--json")
    assert (outcome.status, outcome.json["outcome"]) == (3, "not_measured")


def test_the_sums_may_come_late(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM may answer before it counts; the harness waits for its own requests."""
    with serving_vllm() as server:
        right, asked = server.metrics, []

        def late() -> str:
            asked.append(len(server.bodies))
            text = right()
            # The first two readings after the prompts are of before the last one.
            return text.replace("48.0", "47.0") if asked.count(6) <= 2 else text

        monkeypatch.setattr(server, "metrics", late)
        assert measure(prepare(recorded, endpoint=server.endpoint)).run.aggregate == (6, 6, 6, 0, 12)
    assert asked.count(6) == 3


def test_a_vllm_server_is_recorded_prompt_by_prompt(recorded: Path, harness: Command) -> None:
    with serving_vllm() as server:
        done = harness("record", recorded, "--endpoint", server.endpoint, "--json")
        assert done.status == 0, done.err
        document = json.loads(Path(done.json["golden"]).read_text())
        # The fake server makes the same five rounds of every completion.
        assert all(prompt["histogram"] == [1, 1, 1, 0, 2] for prompt in document["prompts"])
        assert done.json["unfed"] == ["target", "stages", "proposals", "likelihood"]
        checked = harness("check", recorded, "--endpoint", server.endpoint, "--json")
    assert (checked.status, checked.json["verdict"]) == (0, "pass")
