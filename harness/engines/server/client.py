"""What carries requests to a server and answers back: time-outs, retries of the transport, the key, one error each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar

import httpx

from harness.engines.base import Progress
from harness.errors import EngineError, InputError, one_line
from harness.pair.pairfile import Timeouts

__all__ = ["KEY_VARIABLE", "PLAIN_KEY_VARIABLE", "Client", "Reply", "failure"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

KEY_VARIABLE, PLAIN_KEY_VARIABLE = "HARNESS_API_KEY", "HARNESS_PLAIN_API_KEY"
# Tries of a request whose connection fails before the server has answered with so much as a status.
_TRIES = 3
_PAUSE = 0.2
# No answer of a server is as long.
_MOST_BYTES = 1 << 28
_DONE = "[DONE]"


def failure(endpoint: str, asked: str, came: str, next_step: str) -> EngineError:
    """Return the error of a server that fails, as one paragraph."""
    return EngineError(f"{endpoint}: {asked}: {one_line(came, 600)}. Next: {next_step.rstrip('.')}.")


@dataclass(frozen=True)
class Reply:
    """A server's answer to a question that it need not be able to answer.

    Attributes:
        status: 200, or 404 and the like if it does not know the path.
        text: The body.
    """

    status: int
    text: str


class Client:
    """The harness' end of a server's HTTP.

    Args:
        endpoint: The address, such as `http://host:port`.
        timeouts: How long it may take; the total counts from here on.
        concurrency: Requests at once.
        key: Where the address was written, for messages.
        key_variable: The environment variable that holds the server's API key.
        with_key: Whether the key is sent; not to a server that the user does not vouch for.
        how_to_trust: What the user does to have it sent, for messages.
        file: The pair file, for messages.

    Attributes:
        endpoint: The address, without a final slash.
        retried: What was sent again, and why.
        withheld: Whether there is a key that is not sent.

    Raises:
        InputError: The address is not an HTTP URL, or the key is not printable ASCII.
    """

    def __init__(
        self,
        endpoint: str,
        timeouts: Timeouts,
        concurrency: int,
        *,
        key: str = "engine.endpoint or --endpoint",
        key_variable: str = KEY_VARIABLE,
        with_key: bool = True,
        how_to_trust: str = "",
        file: Path | None = None,
    ) -> None:
        self.endpoint = _require_address(endpoint, key, key_variable, file)
        self.retried: list[str] = []
        self._timeouts = timeouts
        self._concurrency = concurrency
        self._variable = key_variable
        secret = _read_secret(key_variable)
        self._secret = secret if with_key else ""
        self._how_to_trust = how_to_trust
        self.withheld = bool(secret) and not with_key
        self._deadline = time.monotonic() + timeouts.total
        self._stack = contextlib.ExitStack()
        self._gate = asyncio.Semaphore(concurrency)

    def __enter__(self) -> Self:
        self._runner = self._stack.enter_context(asyncio.Runner())
        headers = {"Authorization": f"Bearer {self._secret}"} if self._secret else {}
        self._http = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(self._timeouts.silence, connect=self._timeouts.connect, pool=None),
            limits=httpx.Limits(max_connections=self._concurrency),
            # A redirect would take prompts and key to another address than the one that was named.
            follow_redirects=False,
        )
        self._stack.callback(lambda: self._runner.run(self._http.aclose()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Return what some work with this client gives."""
        return self._runner.run(work)

    def each(
        self, work: Callable[[_Item], Awaitable[_Result]], items: Sequence[_Item], progress: Progress | None = None
    ) -> list[_Result]:
        """Return what the work gives for each item, in their order; so many at once as were asked for.

        The first that fails ends the others.
        """
        results: dict[int, _Result] = {}

        async def one(index: int, item: _Item) -> None:
            async with self._gate:
                results[index] = await work(item)
            if progress is not None:
                progress.advance(1)

        async def whole() -> None:
            async with asyncio.TaskGroup() as group:
                for index, item in enumerate(items):
                    group.create_task(one(index, item))

        try:
            self.run(whole())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [results[index] for index in range(len(items))]

    async def look(self, path: str) -> Reply:
        """Ask for what a server may know.

        Raises:
            InputError: It wants another key.
            EngineError: It fails.
        """
        status, body = await self._exchange("GET", path, None, f"GET {path}", allow=(404, 405))
        return Reply(status, body.decode("utf-8", "replace"))

    async def flush_prefixes(self) -> bool:
        """Ask an SGLang server to forget the prefixes that it has computed; return whether it did.

        A server need not allow that, and does not while other requests run.

        Raises:
            EngineError: It fails.
        """
        refusals = (400, 401, 403, 404, 405, 501)
        status, _ = await self._exchange("POST", "/flush_cache", None, "POST /flush_cache", allow=refusals)
        return status == 200

    async def ask(self, path: str, body: dict[str, Any], what: str, allow: Sequence[int] = ()) -> tuple[int, Any]:
        """Return the status and the JSON with which a request is answered.

        Args:
            path: The part of the URL after the endpoint, such as `/generate`.
            body: The request's JSON.
            what: The purpose of the request, in an error's words.
            allow: Statuses that are answers too.

        Raises:
            InputError: The server does not have the path, or wants another key.
            EngineError: It fails, or its answer is not JSON.
        """
        asked = f"POST {path} for {what}"
        status, answer = await self._exchange("POST", path, body, asked, allow=allow)
        return status, self.parse(answer.decode("utf-8", "replace"), asked)

    async def events(self, path: str, body: dict[str, Any], what: str) -> list[Any]:
        """Return the events with which a request is answered, each as its JSON, in order.

        Raises:
            InputError: The server does not have the path, or wants another key.
            EngineError: It fails, its answer is not a stream of events, or the stream ends early.
        """
        asked = f"POST {path} for {what}"
        _, answer = await self._exchange("POST", path, body, asked)
        lines = [line for line in answer.decode("utf-8", "replace").splitlines() if line.strip()]
        data = [line.removeprefix("data:").strip() for line in lines if line.startswith("data:")]
        if len(data) < len(lines):
            other = next(line for line in lines if not line.startswith("data:"))
            self.fail(asked, f"answered with something that is not a stream of events: {other[:200]!r}", _PROXY)
        if not data or data[-1] != _DONE:
            self.fail(asked, f"ended its answer after {len(data)} events without the one that says so", _LOG)
        return [self.parse(line, asked) for line in data[:-1]]

    def parse(self, text: str, asked: str) -> Any:
        """Return the JSON in an answer.

        Raises:
            EngineError: The text is not JSON.
        """
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            self.fail(asked, f"answered with something that is not JSON: {text[:200]!r}", _PROXY)

    def fail(self, asked: str, came: str, next_step: str) -> NoReturn:
        """Raise the error of a server that fails."""
        raise failure(self.endpoint, asked, self._hide(came), next_step)

    async def _exchange(
        self, method: str, path: str, body: dict[str, Any] | None, asked: str, allow: Sequence[int] = ()
    ) -> tuple[int, bytes]:
        """Send a request and return its status and body; all that can go wrong with the transport ends here."""
        begun = False
        received = bytearray()
        for attempt in range(1, _TRIES + 1):
            try:
                async with asyncio.timeout(max(0.0, self._deadline - time.monotonic())):
                    async with self._http.stream(method, self.endpoint + path, json=body) as response:
                        begun = True
                        async for chunk in response.aiter_bytes():
                            received += chunk
                            if len(received) > _MOST_BYTES:
                                self.fail(asked, f"answered more than {_MOST_BYTES} bytes", _PROXY)
                if response.status_code != 200 and response.status_code not in allow:
                    self._refuse(response.status_code, bytes(received), asked)
                return response.status_code, bytes(received)
            except TimeoutError:
                self.fail(
                    asked,
                    f"the answer had not ended when the {self._timeouts.total:g} seconds for the whole run were over, "
                    f"{len(received)} bytes received",
                    "see whether the server is busy, or raise engine.timeouts.total",
                )
            except httpx.ConnectTimeout:
                self.fail(asked, f"no connection within {self._timeouts.connect:g} seconds", _ADDRESS)
            except httpx.TimeoutException:
                self.fail(
                    asked,
                    f"nothing came for {self._timeouts.silence:g} seconds, after {len(received)} bytes",
                    "see the server's log, or raise engine.timeouts.silence",
                )
            except httpx.TransportError as error:
                told = f"{type(error).__name__}: {error}".rstrip(": ")
                if not begun and attempt < _TRIES:
                    self.retried.append(self._hide(f"{asked}: {told}"))
                    await asyncio.sleep(_PAUSE * 2 ** (attempt - 1))
                    continue
                self._cut(asked, told, len(received), begun=begun, refused=isinstance(error, httpx.ConnectError))
        raise AssertionError

    def _cut(self, asked: str, told: str, received: int, *, begun: bool, refused: bool) -> NoReturn:
        if refused:
            self.fail(asked, f"no connection after {_TRIES} tries ({told})", _ADDRESS)
        if begun:
            self.fail(asked, f"the connection was cut after {received} bytes of the answer ({told})", _LOG)
        self.fail(asked, f"the connection was cut before an answer, {_TRIES} times ({told})", _LOG)

    def _refuse(self, status: int, body: bytes, asked: str) -> NoReturn:
        text = one_line(self._hide(body.decode("utf-8", "replace")), 300)
        if status in (401, 403) and self.withheld:
            raise InputError(
                f"the server asks for an API key, and {self._variable} is not sent to an address that only the pair "
                "file names",
                file=self.endpoint,
                key=asked,
                found=f"status {status}: {text}",
                expected="an address that you named",
                next_step=f"if you trust that server, {self._how_to_trust}",
            )
        if 300 <= status < 400:
            self.fail(asked, f"answered status {status}, a redirect, which is not followed", _PROXY)
        if status in (401, 403):
            raise InputError(
                "the server does not accept the API key" if self._secret else "the server asks for an API key",
                file=self.endpoint,
                key=asked,
                found=f"status {status}: {text}",
                expected=f"the key that it takes, in the environment variable {self._variable}",
                next_step=f"set {self._variable}, which is "
                + ("set to another one" if self._secret else "not set or empty"),
            )
        if status in (404, 405):
            raise InputError(
                "the server does not have this path",
                file=self.endpoint,
                key=asked,
                found=f"status {status}: {text}",
                expected="an SGLang server's own address",
                next_step="name the server itself, not a gateway or another service in front of it",
            )
        self.fail(asked, f"answered status {status} ({text}); 200 is expected", _LOG)

    def _hide(self, text: str) -> str:
        return text.replace(self._secret, f"${self._variable}") if self._secret else text


_LOG = "see the server's log"
_ADDRESS = "check that the server runs, and that engine.endpoint or --endpoint is its address"
_PROXY = "check that the address is the server's own, and that no proxy answers in its place (NO_PROXY)"


def _require_address(endpoint: str, key: str, key_variable: str, file: Path | None) -> str:
    try:
        url = httpx.URL(endpoint)
        usable = url.scheme in ("http", "https") and bool(url.host) and not url.query and not url.fragment
    except (httpx.InvalidURL, ValueError):
        url, usable = httpx.URL(), False
    if url.userinfo:
        raise InputError(
            "an address with a user or a password would be written into results",
            file=file,
            key=key,
            expected="http://host:port",
            next_step=f"put the server's API key into the environment variable {key_variable}",
        )
    if not usable:
        raise InputError(
            "this is not the address of a server",
            file=file,
            key=key,
            found=endpoint or "nothing",
            expected="http://host:port",
        )
    return endpoint.rstrip("/")


def _read_secret(variable: str) -> str:
    secret = os.environ.get(variable, "").strip()
    if not (secret.isascii() and secret.isprintable()):
        raise InputError(
            "the API key contains characters that an HTTP header cannot carry",
            key=variable,
            expected="printable ASCII",
            next_step="set it again, without line breaks",
        )
    return secret
