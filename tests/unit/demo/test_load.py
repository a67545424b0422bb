"""The users' requests: at their times, to the least loaded pod, tried again where a pod went away."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from demo import load
from demo.load import Load
from outrider.simulator.request import Request


class Pods:
    """Servers on addresses of their own, one port for all, as pods have."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.hits: Counter[str] = Counter()
        self.port = 0
        self._servers: list[TestServer] = []

    async def add(self, address: str, status: int = 200) -> None:
        async def complete(request: web.Request) -> web.Response:
            self.bodies.append(await request.json())
            self.hits[address] += 1
            return web.json_response({}, status=status)

        app = web.Application()
        app.add_routes([web.post("/v1/completions", complete)])
        server = TestServer(app, host=address, port=self.port or None)
        await server.start_server()
        self.port = server.port or 0
        self._servers.append(server)

    async def close(self) -> None:
        for server in self._servers:
            await server.close()


@pytest.fixture
async def pods() -> AsyncIterator[Pods]:
    found = Pods()
    yield found
    await found.close()


def requests(count: int) -> list[Request]:
    return [Request(f"r{number}", 0.0, 5, 7, acceptance=(0.8, 0.64)) for number in range(count)]


def users(pods: Pods, addresses: list[str], count: int = 4) -> Load:
    return Load("chat", requests(count), lambda: addresses, port=pods.port)


async def test_every_request_is_sent_with_its_lengths_and_its_acceptance(pods: Pods) -> None:
    await pods.add("127.0.0.1")
    sent = users(pods, ["127.0.0.1"])
    await sent.run(time.monotonic())
    assert sent.counts() == {"sent": 4, "answered": 4, "retried": 0, "failed": 0, "failures": {}}
    body = pods.bodies[0]
    assert (body["model"], body["max_tokens"], len(body["prompt"].split())) == ("chat", 7, 5)
    assert body["vllm_xargs"] == {"simulated_acceptance": "0.8000,0.6400"}


async def test_load_is_spread_over_the_pods(pods: Pods) -> None:
    for address in ("127.0.0.1", "127.0.0.2"):
        await pods.add(address)
    await users(pods, ["127.0.0.1", "127.0.0.2"], count=10).run(time.monotonic())
    assert pods.hits == {"127.0.0.1": 5, "127.0.0.2": 5}


async def test_a_request_whose_pod_went_away_is_tried_again(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "PAUSE_S", 0.0)
    await pods.add("127.0.0.1")
    answers = iter([["127.0.0.9"], ["127.0.0.1"]])
    sent = Load("chat", requests(1), lambda: next(answers), port=pods.port)
    await sent.run(time.monotonic())
    assert sent.counts() == {"sent": 1, "answered": 1, "retried": 1, "failed": 0, "failures": {}}


@pytest.mark.parametrize(
    ("addresses", "failure"),
    [
        pytest.param([], "no ready pod", id="nobody there"),
        pytest.param(["127.0.0.1"], "status 503", id="refused each time"),
    ],
)
async def test_what_stays_unanswered_is_counted(
    pods: Pods, monkeypatch: pytest.MonkeyPatch, addresses: list[str], failure: str
) -> None:
    monkeypatch.setattr(load, "PAUSE_S", 0.0)
    await pods.add("127.0.0.1", status=503)
    sent = users(pods, addresses, count=2)
    await sent.run(time.monotonic())
    assert sent.counts()["failures"] == {failure: 2}
    assert sent.in_flight == 0
