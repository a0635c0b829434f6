"""A running SGLang server as an engine: its rounds are the reference's, each of its faults is one paragraph in time."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.cli.app import main
from harness.commands.check import check
from harness.commands.measure import measure
from harness.commands.prepare import prepare
from harness.counts.run import PromptRecord
from harness.engines.server.client import KEY_VARIABLE, PLAIN_KEY_VARIABLE
from harness.errors import EngineError, InputError
from harness.golden.golden_class import GoldenClass
from harness.pair.pair import Pair
from harness.pair.pairfile import Timeouts
from harness.report.bodies.base import plain
from harness.report.bodies.check import check_body
from suites.support.command import Command
from suites.support.faulty_server import Faulty, Told, serving, told_by
from suites.support.random_pair import SERVABLE, write_pair
from suites.support.schemas import require_valid

# Seconds: to connect, of silence, and for a whole run; and what may come on top of these on a busy machine.
CONNECT, SILENCE, TOTAL, SLACK = 1.0, 1.0, 4.0, 4.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("servable")
    assert main(["record", str(write_pair(folder, draft=SERVABLE)), "--json"]) == 0
    return folder


@pytest.fixture(scope="module")
def told(folder: Path) -> Told:
    return told_by(prepare(folder / "random.pair.toml"))


@pytest.fixture
def recorded(folder: Path, tmp_path: Path) -> Path:
    """The pair file of a fresh copy of a recorded pair."""
    shutil.copytree(folder, tmp_path / "pair")
    return tmp_path / "pair" / "random.pair.toml"


def _impatient(file: Path) -> Path:
    """Give a pair file short time-outs, and one request at a time so that faults come in order."""
    text = f"\n[engine]\nconcurrency = 1\ntimeouts = {{connect = {CONNECT}, silence = {SILENCE}, total = {TOTAL}}}\n"
    file.write_text(file.read_text() + text)
    return file


@dataclass(frozen=True)
class _Healthy:
    file: Path
    told: Told
    expected: tuple[PromptRecord, ...]


@pytest.fixture(scope="module", params=[None, 2, 5], ids=["no end", "ends at 2", "ends at 5"])
def healthy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> _Healthy:
    # Rounds of every length, which nothing but a check holds against what SGLang can serve.
    file = write_pair(tmp_path_factory.mktemp("healthy"), eos=request.param)
    expected = measure(prepare(file, engine="reference:sequential")).run.records
    assert any(record.eos_round for record in expected) == (request.param is not None)
    return _Healthy(file, told_by(prepare(file)), expected)


@pytest.mark.parametrize("incremental", [False, True], ids=["whole", "incremental"])
@pytest.mark.parametrize("chunk", [1, 2, 5, 99])
def test_it_counts_what_the_reference_counts(healthy: _Healthy, chunk: int, incremental: bool) -> None:
    """Also where chunks hold several rounds: then the order is not known, and the counts are."""
    expected = healthy.expected
    with serving(healthy.told, chunk=chunk, incremental=incremental) as server:
        run = measure(prepare(healthy.file, endpoint=server.endpoint)).run
    for ours, theirs in zip(run.records, expected, strict=True):
        assert _counts(ours) == _counts(theirs)
        assert ours.continuation == theirs.continuation, ours.id
        assert ours.prompt_hash == theirs.prompt_hash
        assert ours.chains is None
        if chunk == 1:
            assert ours.rounds == theirs.rounds, ours.id
    unknown = [record for record in run.records if record.rounds is None]
    assert bool(unknown) == (chunk > 1)
    assert any(
        f"the rounds of {len(unknown)} of 6 prompts are known by their counts" in note for note in run.notes
    ) == (chunk > 1)


def _counts(record: PromptRecord) -> tuple[Any, ...]:
    return record.id, record.histogram, record.eos_round


def test_check_gives_the_verdict_of_the_reference(recorded: Path, told: Told) -> None:
    with serving(told) as server:
        result = check(prepare(recorded, endpoint=server.endpoint))
        bodies, asked = list(server.bodies), list(server.asked)
    assert asked.count("/server_info") == 1, "what a server says about itself is read once and kept"
    states = {name: str(finding.state) for name, finding in result.findings.items()}
    assert states == {
        "contract": "pass",
        "target": "pass",
        "lossless": "pass",
        "stages": "not_applicable",
        "proposals": "not_applicable",
        "likelihood": "not_applicable",
        "acceptance": "pass",
    }
    assert str(GoldenClass.of_run(result.measurement.run)) == "server-cpu-float32"
    assert result.pair.settings.served_by == "sglang==0.5.23"
    # The text goes on past the limit by as much as the last round can: the end may stand there.
    assert {body["sampling_params"]["max_new_tokens"] for body in bodies if body.get("stream")} == {24 + 4}
    assert all(body["sampling_params"]["temperature"] == 0.0 for body in bodies)
    body = plain(check_body(result))
    require_valid("check", body)
    assert body["server"]["version"] == "0.5.23"
    assert body["server"]["speculative_num_steps"] == 4
    assert "in-the-info" not in str(body)


def test_another_target_that_is_its_own_judge_is_a_change(recorded: Path, told: Told) -> None:
    """It puts out other tokens and finds them right, so that nothing is lossy; the golden's text is 7.4 nats away."""
    with serving(told, "has another target") as server:
        result = check(prepare(recorded, endpoint=server.endpoint))
    assert str(GoldenClass.of_run(result.measurement.run)) != str(result.golden.golden_class)
    assert str(result.findings.lossless.state) == "pass"
    target = result.findings.target
    assert str(target.state) == "changed"
    assert (target.measured.drifted, target.measured.explained, target.measured.decides) == (6, 0, True)
    assert target.measured.greatest_gap == pytest.approx(7.4)
    assert result.verdict == "changed"


def test_its_own_target_chooses_otherwise(recorded: Path, told: Told) -> None:
    with serving(told, "its target chooses otherwise") as server:
        result = check(prepare(recorded, endpoint=server.endpoint))
    assert str(result.findings["lossless"].state) == "regression"
    assert result.exit_code == 1
    own = [record.own for record in result.measurement.run.records]
    assert all(one is not None and not one.agrees[3] and one.agrees[:3].all() for one in own)
    assert all(one is not None and np.isclose(one.gaps[3], 7.4) for one in own)


def test_a_plain_server_judges(recorded: Path, told: Told, harness: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second server is asked for the judgement, the first is not, and each gets its own key."""
    monkeypatch.setenv(KEY_VARIABLE, "for-the-first")
    monkeypatch.setenv(PLAIN_KEY_VARIABLE, "for-the-second")
    alone = replace(told, info=told.info | {"speculative_algorithm": None})
    with serving(told) as server, serving(alone, "its target chooses otherwise") as plain:
        options = ("--endpoint", server.endpoint, "--plain-endpoint", plain.endpoint)
        outcome = harness("check", recorded, *options, "--json")
        assert not any("logprob_start_len" in body for body in server.bodies)
        assert server.headers["Authorization"] == "Bearer for-the-first"
        assert plain.headers["Authorization"] == "Bearer for-the-second"
    assert outcome.json["detectors"]["lossless"]["verdict"] == "regression"
    assert any(plain.endpoint in note for note in outcome.json["notes"])
    assert "for-the-" not in outcome.out + outcome.err


def test_a_plain_server_that_speculates_is_refused(recorded: Path, told: Told, harness: Command) -> None:
    with serving(told) as server, serving(told) as plain:
        outcome = harness("check", recorded, "--endpoint", server.endpoint, "--plain-endpoint", plain.endpoint)
    assert outcome.status == 2
    assert "without speculation" in outcome.err
    assert plain.endpoint in outcome.err


# What a server does wrong in a run, and what the paragraph says of it.
FAULTS: dict[str, tuple[str, ...]] = {
    "accepts and never answers": ("GET /server_info", "nothing came for 1 seconds", "engine.timeouts.silence"),
    "drips": ("GET /server_info", "the 4 seconds for the whole run were over", "engine.timeouts.total"),
    "drips its tokens": ("POST /generate for prompt 'p0'", "the 4 seconds for the whole run were over"),
    "answers 500 to everything": ("status 500", "the wires are crossed", "see the server's log"),
    "answers HTML": ("GET /server_info", "not JSON: '<html>"),
    "wants a key": ("asks for an API key", KEY_VARIABLE, "not set"),
    "answers 404 to generate": ("does not have this path", "POST /generate", "status 404"),
    "answers 400": ("status 400", "the prompt is too long"),
    "answers 500 in the middle": ("prompt 'p2'", "status 500", "out of memory"),
    "dies in the middle": ("prompt 'p2'", "the connection was cut before an answer, 3 times"),
    "is silent in the middle": ("prompt 'p2'", "nothing came for 1 seconds"),
    "cuts before every answer": ("prompt 'p0'", "cut before an answer, 3 times"),
    "cuts after the first byte": ("prompt 'p0'", "the connection was cut after 7 bytes"),
    "cuts between two chunks": ("prompt 'p0'", "the connection was cut after"),
    "answers no JSON": ("prompt 'p0'", "not JSON: '{what'"),
    "answers another shape": ("a chunk of another shape: {'choices': []}", "output_ids"),
    "ends without saying so": ("without the one that says so",),
    "tells an error in the stream": ("aborted",),
    "stops early": ("of 28 tokens", "abort"),
    "takes requests back": ("ran out of cache", "engine.concurrency"),
    "counts nothing": ("output 28 tokens without spec_verify_ct",),
    "has no histogram": ("lacks spec_correct_drafts_histogram",),
    "counters contradict each other": ("contradict each other", "spec_num_correct_drafts"),
    "another histogram than the chunks": ("counts rounds by accepted tokens as", "its chunks brought"),
    "counts more than it puts out": ("counters contradict the output",),
    "puts out tokens past the vocabulary": ("another target", "token 1000000", "below 64"),
}
# Those by which the server does not fit; by the others it fails.
MISUSED = {"wants a key", "answers 404 to generate", "puts out tokens past the vocabulary"}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_paragraph_in_time(recorded: Path, told: Told, harness: Command, fault: str) -> None:
    with serving(told, fault) as server:
        begun = time.monotonic()
        outcome = harness("measure", _impatient(recorded), "--endpoint", server.endpoint)
        assert time.monotonic() - begun < TOTAL + SLACK
        endpoint = server.endpoint
    _require_paragraph(outcome.err, endpoint, *FAULTS[fault])
    assert outcome.status == (2 if fault in MISUSED else 4)
    assert outcome.out == ""


def _require_paragraph(text: str, *says: str) -> None:
    assert text.startswith("error: ")
    assert text.count("\n") == 1, text
    assert "Traceback" not in text
    assert "Next: " in text
    for said in says:
        assert said in text


def test_the_faults_are_faults(told: Told, recorded: Path, harness: Command) -> None:
    """The counterpart: the same command on a server that does nothing wrong."""
    with serving(told) as server:
        outcome = harness("measure", _impatient(recorded), "--endpoint", server.endpoint, "--json")
    assert outcome.status == 0
    assert outcome.json["acceptance"]["rounds"] > 20


@pytest.mark.parametrize("fault", ["judges nothing", "computes NaN"])
def test_a_fault_while_it_judges(recorded: Path, told: Told, harness: Command, fault: str) -> None:
    with serving(told, fault) as server:
        outcome = harness("check", _impatient(recorded), "--endpoint", server.endpoint)
        _require_paragraph(outcome.err, server.endpoint, "without finite log-probabilities")
    assert outcome.status == 4


def test_nobody_listens(recorded: Path, harness: Command) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
    begun = time.monotonic()
    outcome = harness("check", _impatient(recorded), "--endpoint", endpoint)
    assert time.monotonic() - begun < TOTAL + SLACK
    _require_paragraph(outcome.err, endpoint, "no connection after 3 tries", "check that the server runs")
    assert outcome.status == 4


# What a server says of itself, the status is 2 for each, and what is told.
MISFITS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "no speculation": ({"speculative_algorithm": None}, ("runs without speculation", "--speculative-algorithm EAGLE3")),
    "another algorithm": ({"speculative_algorithm": "NGRAM"}, ("found NGRAM", "expected EAGLE3")),
    "other steps": (
        {"speculative_num_steps": 3, "speculative_num_draft_tokens": 4},
        ("speculative_num_steps", "found 3", "expected 4"),
    ),
    "a tree": ({"speculative_eagle_topk": 4}, ("speculative_eagle_topk", "found 4", "expected 1")),
    "other draft tokens": ({"speculative_num_draft_tokens": 8}, ("speculative_num_draft_tokens", "found 8")),
    "adaptive": ({"speculative_adaptive": True}, ("speculative_adaptive", "found True", "expected False")),
    "several layers": ({"enable_multi_layer_eagle": True}, ("enable_multi_layer_eagle", "found True")),
    "too old": ({"version": "0.5.11"}, ("no histogram of accepted counts", "0.5.11", "0.5.12 or later")),
    "no version": ({"version": None}, ("which release",)),
    "another release": ({"version": "0.5.22"}, ("served_by", "sglang==0.5.23", "sglang==0.5.22")),
    "preferred values": (
        {"preferred_sampling_params": '{"top_k": 5, "logit_bias": {"3": 5}}'},
        ("preferred_sampling_params", "logit_bias"),
    ),
    "another dtype": ({"dtype": "int4"}, ("unsupported server dtype", "int4")),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_a_server_that_does_not_fit_is_refused_before_it_generates(
    recorded: Path, told: Told, harness: Command, misfit: str
) -> None:
    says, expected = MISFITS[misfit]
    if misfit == "another release":
        recorded.write_text(f'served_by = "sglang==0.5.23"\n{recorded.read_text()}')
    with serving(replace(told, info=told.info | says)) as server:
        outcome = harness("check", recorded, "--endpoint", server.endpoint)
        assert "/generate" not in server.asked
    assert outcome.status == 2
    for said in expected:
        assert said in outcome.err


def test_another_target_is_refused_before_it_generates(recorded: Path, told: Told, harness: Command) -> None:
    """By its architecture, and by the size of its vocabulary: an id past it would end the server."""
    with serving(replace(told, model={"architectures": ["Qwen3ForCausalLM"]})) as server:
        outcome = harness("check", recorded, "--endpoint", server.endpoint)
        assert "/generate" not in server.asked
    assert outcome.status == 2
    assert "found Qwen3ForCausalLM, expected LlamaForCausalLM" in outcome.err
    for size in (60, 70):
        with serving(replace(told, vocab_size=size)) as server:
            outcome = harness("check", recorded, "--endpoint", server.endpoint)
            assert not any(body.get("stream") for body in server.bodies)
        assert outcome.status == 2
        assert "another vocabulary" in outcome.err
        assert f"found {60 if size == 60 else 'more'}, expected 64" in outcome.err


def test_no_id_past_a_vocabulary_is_sent_to_a_release_that_does_not_check_it(recorded: Path, told: Told) -> None:
    with serving(replace(told, info=told.info | {"version": "0.5.22"})) as server:
        measure(prepare(recorded, endpoint=server.endpoint))
        assert not any("token_ids_logprob" in body for body in server.bodies)


def test_a_broken_connection_is_tried_again_before_an_answer_and_told(
    recorded: Path, told: Told, harness: Command
) -> None:
    with serving(told, "cuts once before the answer") as server:
        outcome = harness("measure", _impatient(recorded), "--endpoint", server.endpoint, "--json")
        assert sum(bool(body.get("stream")) for body in server.bodies) == 7
    assert outcome.status == 0
    (note,) = outcome.json["notes"]
    assert note.startswith("1 requests were sent again, as no answer had begun; first POST /generate for prompt 'p0'")


@pytest.mark.parametrize(("fault", "sent"), [("cuts after the first byte", 1), ("cuts before every answer", 3)])
def test_nothing_is_tried_again_after_the_first_byte(recorded: Path, told: Told, fault: str, sent: int) -> None:
    with serving(told, fault) as server:
        with pytest.raises(EngineError):
            measure(prepare(_impatient(recorded), endpoint=server.endpoint))
        assert sum(bool(body.get("stream")) for body in server.bodies) == sent


@pytest.mark.parametrize("key", ["secret-7", "wrong-3"])
def test_the_key_comes_from_the_environment_and_is_never_told(
    recorded: Path, told: Told, harness: Command, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, key)
    with serving(told, "wants a key") as server:
        outcome = harness("measure", recorded, "--endpoint", server.endpoint, "--json")
    assert outcome.status == (0 if key == "secret-7" else 2)
    assert key not in outcome.out + outcome.err
    if key == "wrong-3":
        assert "does not accept the API key" in outcome.err
        assert f"set {KEY_VARIABLE}" in outcome.err


def test_a_key_that_no_header_carries(recorded: Path, harness: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "line\nbreak")
    outcome = harness("measure", recorded, "--endpoint", "http://127.0.0.1:9")
    assert outcome.status == 2
    assert KEY_VARIABLE in outcome.err
    assert "break" not in outcome.err.replace("line breaks", "")


@pytest.mark.parametrize("endpoint", ["127.0.0.1:30000", "ftp://host", "http://", "http://h:port", "http://me:pw@h:1"])
def test_what_is_no_address(recorded: Path, harness: Command, endpoint: str) -> None:
    outcome = harness("measure", recorded, "--endpoint", endpoint)
    assert outcome.status == 2
    assert "--endpoint" in outcome.err
    assert "expected http://host:port" in outcome.err
    assert "pw" not in outcome.err


def test_a_prompt_that_is_decoded_otherwise_each_time_counts_nothing(recorded: Path, told: Told) -> None:
    """Where chunks hold several rounds, the server is asked again; what does not repeat is left out and told."""
    with serving(told, "decodes otherwise each time", chunk=99) as server:
        run = measure(prepare(_impatient(recorded), endpoint=server.endpoint)).run
    assert all(sum(record.histogram) == 0 for record in run.records)
    assert any(note.startswith("6 of 6 prompts count nothing, first 'p0'") for note in run.notes)


def test_long_chunks_are_asked_to_be_short_where_the_release_knows_how(recorded: Path, told: Told) -> None:
    for version, sent in (("0.5.23", 1), ("0.5.22", None)):
        with serving(replace(told, info=told.info | {"stream_interval": 8, "version": version})) as server:
            measure(prepare(recorded, endpoint=server.endpoint))
            streams = [body for body in server.bodies if body.get("stream")]
        assert {body["sampling_params"].get("stream_interval") for body in streams} == {sent}


@pytest.fixture
def ready(recorded: Path, told: Told) -> Iterator[tuple[Path, Faulty]]:
    with serving(told) as server:
        yield recorded, server


def test_the_server_says_its_dtype_and_device(ready: tuple[Path, Faulty]) -> None:
    file, server = ready
    server.told = replace(server.told, info=server.told.info | {"dtype": "half", "device": "cuda"})
    engine = prepare(file, endpoint=server.endpoint).settings.engine
    assert (engine.dtype, engine.device) == ("float16", "cuda")
    with pytest.raises(InputError, match="server's dtype differs"):
        prepare(file, endpoint=server.endpoint, dtype="bfloat16")
    with pytest.raises(InputError, match="server's device differs"):
        prepare(file, endpoint=server.endpoint, device="cpu")
    # SGLang halves a float32 checkpoint where it is left the choice.
    server.told = replace(server.told, info=server.told.info | {"dtype": "auto"})
    assert prepare(file, endpoint=server.endpoint).settings.engine.dtype == "float16"


def test_an_endpoint_in_the_pair_file_names_the_engine(ready: tuple[Path, Faulty]) -> None:
    file, server = ready
    text = file.read_text()
    file.write_text(f'{text}\n[engine]\nendpoint = "{server.endpoint}"\n')
    assert measure(prepare(file)).run.engine == "server:sglang"
    assert measure(prepare(file, engine="reference")).run.engine == "reference:replay"
    file.write_text(f'{text}\n[engine]\nendpoint = "{server.endpoint}"\ndtype = "bfloat16"\n')
    with pytest.raises(InputError, match=r"found float32.*engine\.dtype"):
        prepare(file)
    file.write_text(f'{text}\n[engine]\nname = "server"\n')
    with pytest.raises(InputError, match="needs the address"):
        prepare(file)


def test_an_endpoint_for_another_engine(recorded: Path) -> None:
    with pytest.raises(InputError, match="for running servers, and another engine was chosen"):
        prepare(recorded, engine="reference", endpoint="http://127.0.0.1:1")
    with pytest.raises(InputError, match="for running servers, and another engine was chosen"):
        prepare(recorded, plain_endpoint="http://127.0.0.1:1")


def test_who_cannot_judge_is_told_before_anything_is_decoded(ready: tuple[Path, Faulty], told: Told) -> None:
    """Here a server that speculates."""
    file, server = ready
    with serving(told) as plain:
        pair = prepare(file, endpoint=server.endpoint, plain_endpoint=plain.endpoint)
        with pytest.raises(InputError, match="speculat"):
            check(pair)
    assert server.bodies == [] or all("token_ids_logprob" in body for body in server.bodies)


def test_arguments_of_the_pair_file_are_the_servers(ready: tuple[Path, Faulty]) -> None:
    file, server = ready
    server.told = replace(server.told, info=server.told.info | {"page_size": 16})
    file.write_text(f"{file.read_text()}\n[engine.args]\npage_size = 1\n")
    with pytest.raises(InputError, match=r"page_size.*found 16, expected 1"):
        prepare(file, endpoint=server.endpoint)


def test_other_names_are_told(ready: tuple[Path, Faulty]) -> None:
    file, server = ready
    server.told = replace(server.told, info=server.told.info | {"speculative_draft_model_path": "/models/newer"})
    notes = measure(prepare(file, endpoint=server.endpoint)).run.notes
    assert notes == (
        "the server's draft is /models/newer, the pair file's draft: it is not known whether they are the same",
    )


def test_as_many_requests_at_once_as_are_set(ready: tuple[Path, Faulty]) -> None:
    """Six prompts: together at first, then one after the other."""
    file, server = ready
    pair = prepare(file, endpoint=server.endpoint)

    def most(pair: Pair) -> int:
        server.most = 0
        measure(pair)
        return server.most

    assert most(pair) > 1
    assert most(pair.with_engine(concurrency=1)) == 1


def test_time_outs_of_the_pair_file(recorded: Path) -> None:
    _impatient(recorded)
    timeouts = prepare(recorded).settings.engine.timeouts
    assert timeouts == Timeouts(connect=CONNECT, silence=SILENCE, total=TOTAL)
    recorded.write_text(recorded.read_text().replace("silence", "silent"))
    with pytest.raises(
        InputError, match=r"engine\.timeouts\.silent: unknown key \(found 1.0, expected one of connect, silence"
    ):
        prepare(recorded)


def test_two_servers_compared(ready: tuple[Path, Faulty], harness: Command) -> None:
    file, server = ready
    outcome = harness(
        "compare", file, file, "--engine-a", "reference:sequential", "--endpoint-b", server.endpoint, "--json"
    )
    assert outcome.status == 0
    assert outcome.json["drops"]["rate"]["estimate"] == 0
    assert "server:sglang" in outcome.json["b"]["label"]


def test_a_server_cannot_be_traced(ready: tuple[Path, Faulty], harness: Command) -> None:
    file, server = ready
    file.write_text(f'{file.read_text()}\n[engine]\nendpoint = "{server.endpoint}"\n')
    outcome = harness("trace", file)
    assert outcome.status == 2
    assert "server" in outcome.err
