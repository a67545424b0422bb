"""The gate before vLLM's own server, driven by hand as an ASGI server would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest

from outrider_runtime.middleware import Door, Gate, Receive, Scope, Send
from outrider_runtime.progress import Progress

Message = MutableMapping[str, Any]


class FakeDoor(Door):
    """Writes down when it is asked for figures; its clock stands still."""

    def __init__(self, progress: Progress | None, log: list[str]) -> None:
        self.progress, self._log = progress, log

    def now_s(self) -> float:
        return 0.0

    async def refresh(self) -> None:
        self._log.append("refresh")


class Server:
    """vLLM behind a gate whose engine takes one request and lets one wait."""

    def __init__(self, *, started: bool = True) -> None:
        self.log: list[str] = []
        self.sent: list[Message] = []
        self.failure: BaseException | None = None
        self.in_flight_inside: int | None = None
        self.progress = Progress(max_num_seqs=1, max_waiting=1, no_progress_s=10.0) if started else None
        self.gate = Gate(self._app, FakeDoor(self.progress, self.log))

    def fill(self) -> None:
        """As many requests as the engine may have."""
        assert self.progress is not None
        while self.progress.enter(0.0) is None:
            pass
        self.progress.rejected["queue"] = 0

    async def request(self, method: str, path: str, kind: str = "http") -> None:
        scope: Scope = {"type": kind, "path": path}
        if kind == "http":
            scope["method"] = method
        await self.gate(scope, self._receive, self._send)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert receive == self._receive  # vLLM itself must hear of a client that hangs up
        assert send == self._send
        self.log.append("vllm")
        if self.progress is not None:
            self.in_flight_inside = self.progress.in_flight
        if self.failure is not None:
            raise self.failure

    async def _receive(self) -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, message: Message) -> None:
        self.sent.append(message)


@pytest.mark.parametrize(
    "path",
    ["/v1/completions", "/v1/chat/completions", "/v2/rerank", "/inference/v1/generate", "/invocations", "/cohere/v2"],
)
async def test_work_is_in_flight_while_vllm_answers_it(path: str) -> None:
    server = Server()
    await server.request("POST", path)
    assert server.log == ["vllm"]
    assert server.in_flight_inside == 1
    assert server.progress is not None
    assert server.progress.in_flight == 0


async def test_work_is_refused_with_the_time_to_try_again() -> None:
    server = Server()
    server.fill()
    await server.request("POST", "/v1/completions")
    assert server.log == []
    begin, body = server.sent
    assert (begin["type"], begin["status"]) == ("http.response.start", 503)
    assert dict(begin["headers"]) == {
        b"content-type": b"application/json",
        b"content-length": str(len(body["body"])).encode(),
        b"retry-after": b"1",
    }
    error = json.loads(body["body"])["error"]
    assert "queue is full" in error["message"]
    assert error["code"] == 503


async def test_a_stuck_engine_is_given_nothing_more() -> None:
    server = Server()
    assert server.progress is not None
    server.progress.enter(-11.0)
    server.progress.heard_s = -11.0
    await server.request("POST", "/v1/completions")
    assert server.log == []
    assert b"no progress" in server.sent[1]["body"]


async def test_a_refused_request_does_not_leave() -> None:
    """It had not entered."""
    server = Server()
    server.fill()
    await server.request("POST", "/v1/completions")
    assert server.progress is not None
    assert server.progress.in_flight == 2
    assert server.progress.rejected["queue"] == 1


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(RuntimeError("vLLM failed"), id="an error"),
        pytest.param(asyncio.CancelledError(), id="the client hung up"),
    ],
)
async def test_a_request_leaves_however_it_ends(failure: BaseException) -> None:
    server = Server()
    server.failure = failure
    with pytest.raises(type(failure)):
        await server.request("POST", "/v1/completions")
    assert server.in_flight_inside == 1
    assert server.progress is not None
    assert server.progress.in_flight == 0


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        pytest.param("GET", "/v1/models", "http", id="a question"),
        pytest.param("POST", "/tokenize", "http", id="work for the processor alone"),
        pytest.param("GET", "/health", "http", id="a probe"),
        pytest.param("POST", "/v1/load_lora_adapter", "http", id="an adapter to load"),
        pytest.param("POST", "/v1/unload_lora_adapter", "http", id="an adapter to unload"),
        pytest.param("", "/v1/realtime", "websocket", id="a websocket"),
        pytest.param("", "", "lifespan", id="the server's own start"),
    ],
)
async def test_what_is_no_work_passes_a_full_engine(method: str, path: str, kind: str) -> None:
    server = Server()
    server.fill()
    await server.request(method, path, kind)
    assert server.log == ["vllm"]
    assert server.in_flight_inside == 2  # as before: it is not counted
    assert server.progress is not None
    assert server.progress.in_flight == 2


async def test_before_the_engine_is_there_vllm_answers_itself() -> None:
    server = Server(started=False)
    await server.request("POST", "/v1/completions")
    assert server.log == ["vllm"]


@pytest.mark.parametrize("path", ["/metrics", "/metrics/"])
async def test_a_scrape_finds_fresh_figures(path: str) -> None:
    server = Server()
    await server.request("GET", path)
    assert server.log == ["refresh", "vllm"]
