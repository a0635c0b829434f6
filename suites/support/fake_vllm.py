"""A FAKE vLLM server: real HTTP on a local port, with /metrics in the form in which vLLM writes them.

vLLM itself is not part of any environment here. Each completion adds the rounds that it is said to have made to the
counters, and to those of what another client sends in between where that is the fault.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from suites.support.faulty_server import local_server

__all__ = ["FakeVllm", "serving_vllm"]

_METRICS = """\
# HELP python_gc_objects_collected_total Objects collected during gc
# TYPE python_gc_objects_collected_total counter
python_gc_objects_collected_total{{generation="0"}} 10154.0
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="a \\"quoted\\" {{name}}"}} {running}.0
# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{engine="0",model_name="target"}} {generated}.0
# TYPE vllm:generation_tokens_created gauge
vllm:generation_tokens_created{{engine="0",model_name="target"}} 1.7640000000e+09
# HELP vllm:request_success_total Count of successfully processed requests.
# TYPE vllm:request_success_total counter
vllm:request_success_total{{engine="0",finished_reason="stop",model_name="target"}} 7.0
vllm:request_success_total{{engine="0",finished_reason="length",model_name="target"}} {requests}.0
vllm:request_success_total{{engine="0",finished_reason="abort",model_name="target"}} 0.0
"""
_SPECULATION = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{{engine="0",model_name="target"}} {drafts}.0
vllm:spec_decode_num_drafts_created{{engine="0",model_name="target"}} 1.764e+09
vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="target"}} {proposed}.0
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="target"}} {accepted}.0
"""
_POSITION = (
    'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="target",position="{0}"}} {1}.0\n'
)


@dataclass
class FakeVllm:
    """A running server.

    Attributes:
        fault: What it does wrong.
        steps: Tokens proposed in a round.
        rounds: Accepted counts of each completion's rounds.
        endpoint: Its address.
        bodies: What completions were asked for.
    """

    fault: str = "none"
    steps: int = 4
    rounds: tuple[int, ...] = (4, 0, 2, 4, 1)
    endpoint: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    # As by others, before: sums over a server's life.
    all_rounds: list[int] = field(default_factory=lambda: [3, 1, 4, 4, 0])
    generated: int = 1000
    requests: int = 42
    lock: threading.Lock = field(default_factory=threading.Lock)

    def complete(self) -> int:
        """Count a completion and return its tokens."""
        with self.lock:
            tokens = 1 + sum(self.rounds) + len(self.rounds)
            # A second client's request, in the middle.
            times = 2 if self.fault == "is used by another client" and self.requests == 44 else 1
            self.requests += times
            self.generated += times * tokens
            self.all_rounds += list(self.rounds) * times
            return tokens

    def metrics(self) -> str:
        """Return the text of /metrics."""
        with self.lock:
            accepted = sum(self.all_rounds) + (self.fault == "counters contradict each other") * len(self.bodies)
            text = _METRICS.format(
                running=3 if self.fault == "is busy" else 0, generated=self.generated, requests=self.requests
            )
            if self.fault == "does not speculate":
                return text
            drafts, cut = len(self.all_rounds), len(self.bodies) if self.fault == "cuts its chains" else 0
            text += _SPECULATION.format(drafts=drafts, proposed=drafts * self.steps - cut, accepted=accepted)
            for step in range(self.steps):
                text += _POSITION.format(step, sum(accepted > step for accepted in self.all_rounds))
            return text


@contextlib.contextmanager
def serving_vllm(fault: str = "none", **changes: Any) -> Iterator[FakeVllm]:
    """Run a fake vLLM on a free port until the block is left."""
    state = FakeVllm(fault, **changes)
    with local_server(type("Handler", (_Handler,), {"state": state})) as state.endpoint:
        yield state


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: FakeVllm

    def log_message(self, *_arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/version":
            self._send(json.dumps({"version": "0.11.2"}))
        elif self.path == "/v1/models":
            self._send(json.dumps({"object": "list", "data": [{"id": "target", "max_model_len": 512}]}))
        elif self.path == "/metrics":
            text = self.state.metrics()
            if self.state.fault == "writes what is no number" and self.state.bodies:
                text = text.replace(f"{self.state.requests}.0", "many")
            self._send(text)
        else:
            self._send('{"detail": "Not Found"}', 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.state.lock:
            self.state.bodies.append(body)
        tokens = self.state.complete()
        usage = {} if self.state.fault == "tells no usage" else {"usage": {"completion_tokens": tokens}}
        self._send(json.dumps({"object": "text_completion", "choices": [{"text": ""}], **usage}))

    def _send(self, text: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())
