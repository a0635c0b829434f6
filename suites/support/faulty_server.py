"""A fake SGLang server with every fault: real HTTP on a local port, answers made of the reference engine's rounds.

It stands for a server that misbehaves, which the real one cannot be made to do. Its right answers follow SGLang's own:
a request stops at the first round that reaches the token limit, that round is counted in full, what is put out is cut,
and the counters come with the last chunk. `suites/sglang/test_server.py` has the real one.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from harness.counts.run import histogram_of
from harness.engines.base import Progress
from harness.engines.reference.engine import ReferenceEngine
from harness.pair.pair import Pair, load_prompts

__all__ = ["Faulty", "Told", "local_server", "serving", "told_by"]


@dataclass
class Told:
    """What the server answers with.

    Attributes:
        texts: Each prompt's continuation, long enough.
        rounds: Each prompt's accepted counts.
        info: What /server_info says.
        model: What /model_info says.
        vocab_size: Of its target.
    """

    texts: dict[tuple[int, ...], tuple[int, ...]]
    rounds: dict[tuple[int, ...], tuple[int, ...]]
    info: dict[str, Any]
    model: dict[str, Any]
    vocab_size: int


@dataclass
class Faulty:
    """A running server.

    Attributes:
        endpoint: Its address.
        fault: What it does wrong.
        asked: The path of each request, in order.
        bodies: What was sent to /generate.
        headers: Of the last request.
        chunk: Rounds in one chunk.
        incremental: Whether chunks hold new tokens only.
        running: Requests to generate that are being answered.
        most: As many of these as there were at once.
        flushed: How often its prefix cache was emptied.
    """

    told: Told
    fault: str
    chunk: int = 1
    incremental: bool = False
    endpoint: str = ""
    asked: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    running: int = 0
    most: int = 0
    flushed: int = 0
    over: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)


def told_by(pair: Pair, *, extra: int = 16) -> Told:
    """Return what a healthy server answers for a pair, by the reference engine's rounds of longer texts."""
    decode = pair.settings.decode
    longer = decode.model_copy(update={"max_new_tokens": decode.max_new_tokens + extra})
    # The end of a text is for the harness to apply.
    endless = replace(pair, settings=pair.settings.model_copy(update={"decode": longer}))
    endless = replace(endless, target=replace(pair.target, eos_ids=()))
    prompts = load_prompts(endless)
    records = ReferenceEngine("sequential").run(endless, prompts, None, Progress()).records
    return Told(
        texts={prompt.ids: record.continuation for prompt, record in zip(prompts, records, strict=True)},
        rounds={prompt.ids: record.rounds or () for prompt, record in zip(prompts, records, strict=True)},
        info={
            "version": "0.5.23",
            "model_path": str(pair.settings.target),
            "dtype": "float32",
            "device": "cpu",
            "api_key": "in-the-info",
            "stream_interval": 1,
            "speculative_algorithm": "EAGLE3",
            "speculative_draft_model_path": str(pair.settings.draft),
            "speculative_num_steps": decode.num_steps,
            "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": decode.num_steps + 1,
            "speculative_adaptive": False,
        },
        model={"architectures": [pair.target.architecture], "preferred_sampling_params": None},
        vocab_size=pair.target.vocab_size,
    )


class _QuietServer(ThreadingHTTPServer):
    """A server whose clients may go away."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def local_server(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Run a server on a free port until the block is left, and yield its address."""
    server = _QuietServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def serving(told: Told, fault: str = "none", *, chunk: int = 1, incremental: bool = False) -> Iterator[Faulty]:
    """Run a server with a fault on a free port until the block is left."""
    state = Faulty(told, fault, chunk, incremental)
    with local_server(type("Handler", (_Handler,), {"state": state})) as state.endpoint:
        try:
            yield state
        finally:
            state.over.set()


def _other(text: tuple[int, ...]) -> tuple[int, ...]:
    """Return the text of another target, which finds its own choices right."""
    return (*text[:3], (text[3] + 1) % 5, *text[4:])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Faulty

    def log_message(self, *_arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        state = self.state
        self._note()
        if state.fault == "accepts and never answers":
            state.over.wait()
            self.close_connection = True
            return
        if state.fault == "drips":
            self._drip()
            return
        if state.fault == "answers 500 to everything":
            self._json({"error": "the wires are crossed"}, 500)
        elif state.fault == "wants a key" and self.headers.get("Authorization") != "Bearer secret-7":
            self._json({"error": f"not {self.headers.get('Authorization')}"}, 401)
        elif self.path == "/server_info":
            self._send(b"<html>hello</html>") if state.fault == "answers HTML" else self._json(state.told.info)
        elif self.path == "/model_info":
            self._json(state.told.model)
        else:
            self._json({"detail": "Not Found"}, 404)

    def do_POST(self) -> None:
        if self.path == "/flush_cache":
            self._flush()
            return
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._note()
        with self.state.lock:
            self.state.bodies.append(body)
            count = sum(bool(sent.get("stream")) for sent in self.state.bodies)
        if "token_ids_logprob" in body:
            self._vocabulary(body)
        elif not body.get("stream"):
            self._judge(body)
        elif not self._misbehave(count, body):
            with self.state.lock:
                self.state.running += 1
                self.state.most = max(self.state.most, self.state.running)
            # Long enough for a second request to arrive.
            self.state.over.wait(0.05)
            self._generate(body)

    def _flush(self) -> None:
        self._note()
        if self.state.fault == "keeps its prefixes":
            self._json({"detail": "Not Found"}, 404)
            return
        with self.state.lock:
            self.state.flushed += 1
        self._send(b"Cache flushed.\n")

    def _note(self) -> None:
        with self.state.lock:
            self.state.asked.append(self.path)
            self.state.headers = dict(self.headers)

    def _misbehave(self, count: int, body: dict[str, Any]) -> bool:  # noqa: C901 - a line a fault
        """Do what is wrong with a request to generate; return whether that was all of the answer."""
        fault = self.state.fault
        if fault == "answers 404 to generate":
            self._json({"detail": "Not Found"}, 404)
        elif fault == "answers 500 in the middle" and count > 2:
            self._json({"error": "out of memory"}, 500)
        elif fault == "answers 400":
            self._json({"error": {"message": "the prompt is too long"}}, 400)
        elif fault == "dies in the middle" and count > 2:
            self._hang_up()
        elif fault == "is silent in the middle" and count > 2:
            self.state.over.wait()
            self._hang_up()
        elif fault in ("cuts once before the answer", "cuts before every answer"):
            if fault.startswith("cuts once") and count > 1:
                return False
            self._hang_up()
        elif fault == "cuts after the first byte":
            self._begin()
            self._chunk(b"data: {")
            self._hang_up()
        elif fault == "cuts between two chunks":
            self._begin()
            for event in self._events(body)[:2]:
                self._chunk(b"data: " + json.dumps(event).encode() + b"\n\n")
            self._hang_up()
        elif fault == "drips its tokens":
            self._drip()
        elif fault == "answers no JSON":
            self._stream([b"data: {what\n\n"])
        elif fault == "answers another shape":
            self._stream([b'data: {"choices": []}\n\n'])
        elif fault == "ends without saying so":
            self._begin()
            for event in self._events(body):
                self._chunk(b"data: " + json.dumps(event).encode() + b"\n\n")
            self._chunk(b"")
        elif fault == "tells an error in the stream":
            self._stream([b'data: {"error": {"message": "aborted"}}\n\n'])
        else:
            return False
        return True

    def _generate(self, body: dict[str, Any]) -> None:
        with self.state.lock:
            self.state.running -= 1
        self._stream([b"data: " + json.dumps(event).encode() + b"\n\n" for event in self._events(body)])

    def _events(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the chunks of a request as SGLang makes them."""
        state, fault = self.state, self.state.fault
        told, limit = state.told, body["sampling_params"]["max_new_tokens"]
        ids = tuple(body["input_ids"])
        text, rounds = told.texts[ids], []
        out, ends = 1, [1]
        for accepted in self._rounds(told.rounds[ids]):
            if out >= limit:
                break
            rounds.append(accepted)
            out += accepted + 1
            if len(rounds) % state.chunk == 0:
                ends.append(min(out, limit))
        if ends[-1] != min(out, limit):
            ends.append(min(out, limit))
        if fault == "decodes otherwise each time":
            with state.lock:
                text = (*text[:2], len(state.bodies) % 5, *text[3:])
        if fault == "has another target":
            text = _other(text)
        if fault == "puts out tokens past the vocabulary":
            text = (*text[:2], 10**6, *text[3:])
        events: list[dict[str, Any]] = []
        for before, end in zip([0, *ends], ends, strict=False):
            meta: dict[str, Any] = {"finish_reason": None, "completion_tokens": end, "num_retractions": 0}
            events.append({"output_ids": list(text[before if state.incremental else 0 : end]), "meta_info": meta})
        last = events[-1]["meta_info"]
        last["finish_reason"] = {"type": "length", "length": limit}
        if fault == "stops early":
            events = events[:2]
            events[-1]["meta_info"]["finish_reason"] = {"type": "abort"}
        if fault == "takes requests back":
            last["num_retractions"] = 1
        if rounds and fault != "counts nothing":
            last |= self._counters(rounds)
        return events

    def _rounds(self, rounds: tuple[int, ...]) -> tuple[int, ...]:
        """Return the rounds of a request: others after the cache was emptied, if the server differs from itself."""
        if not self.state.flushed:
            return rounds
        if self.state.fault == "accepts nothing without its cache":
            return (0,) * sum(accepted + 1 for accepted in rounds)
        first = next((index for index, accepted in enumerate(rounds) if accepted), None)
        if self.state.fault == "accepts a little less without its cache" and first is not None:
            return (*rounds[:first], 0, rounds[first] - 1, *rounds[first + 1 :])
        return rounds

    def _counters(self, rounds: Sequence[int]) -> dict[str, Any]:
        steps = self.state.told.info["speculative_num_steps"]
        if self.state.fault == "counts more than it puts out":
            rounds = (*rounds, steps, steps, steps)
        histogram = list(histogram_of(tuple(rounds), steps))
        correct, proposed = sum(rounds), len(rounds) * steps
        fault = self.state.fault
        if fault == "counters contradict each other":
            correct += 1
        elif fault == "another histogram than the chunks":
            # Every sum holds: of two rounds that accepted as many, one accepts one less and one accepts one more.
            value = next((value for value in range(1, steps) if histogram[value] >= 2), None)
            for change, number in () if value is None else ((0, -2), (-1, 1), (1, 1)):
                histogram[(value or 0) + change] += number
        counters = {
            "spec_verify_ct": len(rounds),
            "spec_num_correct_drafts": correct,
            "spec_num_proposed_drafts": proposed,
            "spec_accept_rate": correct / proposed,
            "spec_correct_drafts_histogram": histogram,
        }
        if fault == "has no histogram":
            del counters["spec_correct_drafts_histogram"]
        return counters

    def _judge(self, body: dict[str, Any]) -> None:
        """Give the target's choice along a text: the reference's own tokens."""
        fault, ids = self.state.fault, body["input_ids"]
        prompt = tuple(ids[: body["logprob_start_len"] + 1])
        given, text = ids[len(prompt) :], self.state.told.texts[prompt]
        if fault == "has another target":
            text = _other(text)
        best, own = [None], [[None, prompt[-1], None]]
        for position, token in enumerate(given):
            right = text[position] if fault != "its target chooses otherwise" or position != 3 else (token + 1) % 5
            best.append([[-0.1, right, None]])  # type: ignore[arg-type]
            own.append([-0.1 if right == token else -7.5, token, None])
        if fault == "computes NaN":
            best[2] = [[None, 0, None]]  # type: ignore[call-overload]
        meta: dict[str, Any] = {"input_top_logprobs": best, "input_token_logprobs": own, "completion_tokens": 0}
        if fault == "judges nothing":
            meta = {"completion_tokens": 0}
        self._json({"output_ids": [], "meta_info": meta})

    def _vocabulary(self, body: dict[str, Any]) -> None:
        (token,), size = body["token_ids_logprob"], self.state.told.vocab_size
        if token < size:
            self._json({"output_ids": [1], "meta_info": {}})
            return
        text = f"token_ids_logprob contains out-of-vocabulary token id {token}; valid range is [0, {size})."
        self._json({"error": {"message": text}}, 400)

    def _drip(self) -> None:
        self._begin()
        with contextlib.suppress(OSError):
            while not self.state.over.wait(0.05):
                self._chunk(b".")
        self.close_connection = True

    def _hang_up(self) -> None:
        """Close the connection where it stands."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(2)

    def _stream(self, chunks: Sequence[bytes]) -> None:
        self._begin()
        for chunk in chunks:
            self._chunk(chunk)
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _begin(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _json(self, body: Any, status: int = 200) -> None:
        self._send(json.dumps(body).encode(), status)

    def _send(self, data: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
