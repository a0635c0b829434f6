"""A running SGLang HTTP server counts what the reference counts, asked as any user's server is."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from harness.cli.app import main
from harness.commands.prepare import prepare
from harness.counts.run import PromptRecord
from harness.engines.base import Progress
from harness.engines.registry import find_engine
from harness.engines.server.client import Client
from harness.engines.server.decoding import Known, Measured, decode
from harness.engines.server.info import SglangInfo, read_info
from harness.engines.server.sampling import SENT
from harness.errors import EngineError, InputError
from harness.pair.pair import Pair
from harness.pair.prompts import Prompt
from suites.sglang.http import Served, http_server
from suites.sglang.short_pair import record_short
from suites.support.prompts import shortest

TOKENS, PROMPTS = 10, 2

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class _Serving:
    file: Path
    pair: Pair
    prompts: list[Prompt]
    server: Served
    expected: tuple[PromptRecord, ...]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Serving]:
    folder = tmp_path_factory.mktemp("server")
    file = record_short(folder / "pair", tokens=TOKENS)
    pair = prepare(file)
    with http_server(pair, folder) as server:
        # Those that cost least.
        prompts = shortest(pair, PROMPTS)
        yield _Serving(file, pair, prompts, server, _reference(pair, prompts))


def _reference(pair: Pair, prompts: list[Prompt]) -> tuple[PromptRecord, ...]:
    return find_engine("reference:sequential").run(pair, prompts, None, Progress()).records


def _decode(serving: _Serving, pair: Pair) -> list[Measured]:
    """Decode the prompts on the server by a pair's limits."""
    engine = pair.settings.engine
    with Client(serving.server.endpoint, engine.timeouts, engine.concurrency) as client:
        info = client.run(read_info(client))
        assert isinstance(info, SglangInfo)

        async def one(prompt: Prompt) -> Measured:
            return await decode(client, info, prompt, pair.limits, pair.target.vocab_size)

        return client.each(one, serving.prompts)


def test_check_counts_as_the_reference_does(serving: _Serving, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    ids = ",".join(prompt.id for prompt in serving.prompts)
    options = ("--endpoint", serving.server.endpoint, "--prompts", ids, "--json")
    assert main(["check", str(serving.file), *options]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["verdict"] == "pass"
    assert {name: one["verdict"] for name, one in body["detectors"].items()} == {
        "contract": "pass",
        "target": "pass",
        "lossless": "pass",
        "stages": "not_applicable",
        "proposals": "not_applicable",
        "likelihood": "not_applicable",
        "acceptance": "pass",
    }
    expected = {one.id: list(one.histogram) for one in serving.expected}
    assert {row["id"]: row["histogram"] for row in body["by_prompt"]} == expected
    assert body["acceptance"]["rounds"] >= 2 * PROMPTS
    assert body["engine"] == {"name": "server:sglang", "device": "cpu", "dtype": "float32"}
    assert body["server"]["version"] == "0.5.23"
    assert body["server"]["speculative_algorithm"] == "EAGLE3"
    assert not any("known by their counts" in note for note in body["notes"])


@pytest.mark.parametrize("interval", [1, 8])
def test_an_end_of_text_within(serving: _Serving, interval: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token of the text is taken for its end: rounds in order, and rounds whose chunks hold several."""
    monkeypatch.setattr("harness.engines.server.decoding.SENT", SENT | {"stream_interval": interval})
    ends = serving.expected[0].continuation[5]
    pair = replace(serving.pair, target=replace(serving.pair.target, eos_ids=(ends,)))
    expected = _reference(pair, serving.prompts)
    assert any(one.eos_round is not None for one in expected)
    found = _decode(serving, pair)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.record.histogram == theirs.histogram, theirs.id
        assert ours.record.eos_round == theirs.eos_round, theirs.id
        assert ours.record.continuation == theirs.continuation, theirs.id
        if interval == 1:
            assert ours.known is Known.ORDERED
            assert ours.record.rounds == theirs.rounds, theirs.id
    assert interval == 1 or {one.known for one in found} == {Known.COUNTED}


def test_a_server_with_other_settings_is_refused(serving: _Serving) -> None:
    with pytest.raises(InputError, match=r"speculative_num_steps: .*found 4, expected 3"):
        prepare(serving.file, endpoint=serving.server.endpoint, num_steps=3)


def test_another_vocabulary_is_refused_and_the_server_lives(serving: _Serving) -> None:
    """Sent to its model, an id past the vocabulary would end the server."""
    pair = prepare(serving.file, endpoint=serving.server.endpoint)
    for size, found in ((511, "more"), (513, "512")):
        other = replace(pair, target=replace(pair.target, vocab_size=size))
        with pytest.raises(InputError, match=f"another vocabulary .*found {found}, expected {size}"):
            find_engine("server").run(other, serving.prompts, None, Progress())
    assert prepare(serving.file, endpoint=serving.server.endpoint).settings.served_by == "sglang==0.5.23"


def test_the_server_dies_in_a_run(serving: _Serving) -> None:
    """The last test: nothing is left to ask."""
    longer = serving.pair.settings.decode.model_copy(update={"max_new_tokens": 400})
    pair = prepare(serving.file, endpoint=serving.server.endpoint)
    pair = replace(pair, settings=pair.settings.model_copy(update={"decode": longer}))
    killed: list[float] = []

    def kill() -> None:
        killed.append(time.monotonic())
        os.killpg(serving.server.pid, signal.SIGKILL)

    # Far shorter than 400 tokens take, and longer than what is asked before.
    killer = threading.Timer(4.0, kill)
    killer.start()
    with pytest.raises(EngineError, match=serving.server.endpoint) as caught:
        find_engine("server").run(pair, serving.prompts, None, Progress())
    killer.join()
    assert time.monotonic() - killed[0] < 15
    assert "POST /generate for prompt" in str(caught.value)
