"""Answers without end, in size or in time: they are given up, and nothing waits for them any longer."""

from __future__ import annotations

import asyncio
import gzip
import threading
from pathlib import Path

import pytest
from aiohttp import web

from outrider.adapters.bounded import LEAST, MOST, BoundedSession, TooLong, max_answer
from outrider.adapters.prometheus import Prometheus
from outrider.adapters.prometheus_access import Access
from outrider.errors import Malformed, Unreachable

from .servers import Answer, answer, serving
from .test_prometheus import AT_S, LABELS, matrix, other

MOST_HERE = 1000


async def fetch(give: Answer, timeout_s: float = 60.0) -> bytes:
    async with serving(give) as server:
        with BoundedSession(MOST_HERE) as session:
            response = await asyncio.to_thread(session.get, server.url, timeout=timeout_s)
            return response.content


async def packed(_: web.Request) -> web.StreamResponse:
    """A few bytes that unpack to many."""
    return web.Response(body=gzip.compress(b" " * 1_000_000), headers={"Content-Encoding": "gzip"})


async def endless(request: web.Request) -> web.StreamResponse:
    """An answer in pieces, without a length and without an end."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" " * 64)
        await asyncio.sleep(0.01)


async def dribble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Headers that never end, a byte at a time."""
    await reader.read(1)
    writer.write(b"HTTP/1.1 200 OK\r\nX-Padding: ")
    while not writer.is_closing():
        writer.write(b"x")
        await asyncio.sleep(0.02)


async def test_an_answer_within_the_bound_is_read_whole() -> None:
    assert await fetch(answer(text="x" * MOST_HERE)) == b"x" * MOST_HERE


@pytest.mark.parametrize(
    "give",
    [
        pytest.param(answer(text="x" * (MOST_HERE + 1)), id="a long one"),
        pytest.param(packed, id="one that unpacks to a long one"),
        pytest.param(endless, id="one without an end"),
    ],
)
async def test_a_longer_one_is_given_up(give: Answer) -> None:
    with pytest.raises(TooLong, match="more than 1000 bytes"):
        await fetch(give)


async def test_what_trickles_keeps_no_thread() -> None:
    """Else each pass would lose three more, and the process could not end before the store does."""
    async with serving(endless) as server:
        assert await _thread_ends(server.url)


@pytest.mark.failure(
    "Prometheus",
    "headers of its answer trickle",
    k="held",
    conditions=["MetricsAvailable False PrometheusUnreachable"],
    status="no thread stays behind",
    alerts=["OutriderMetricsMissing"],
    ends="next pass",
    guard="adapters/bounded.py:BoundedSession.send",
)
async def test_headers_that_trickle_keep_no_thread() -> None:
    server = await asyncio.start_server(dribble, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await _thread_ends(f"http://127.0.0.1:{port}")


async def _thread_ends(url: str) -> bool:
    """Whether the thread of a question that takes half a second at most ends, while the server goes on for ever."""
    ended = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()

    def ask() -> None:
        session = BoundedSession(10**9)
        try:
            session.get(url, timeout=0.5)
        except OSError:
            loop.call_soon_threadsafe(ended.set_result, True)

    threading.Thread(target=ask, daemon=True).start()
    async with asyncio.timeout(30):
        found: bool = await ended
        return found


@pytest.mark.failure(
    "Prometheus",
    "an answer too long",
    k="held",
    conditions=["MetricsAvailable False PrometheusUnreachable"],
    alerts=["OutriderMetricsMissing"],
    ends="next pass",
    guard="adapters/bounded.py:BoundedSession.send",
)
async def test_the_store_is_asked_by_such_a_session() -> None:
    assert isinstance(Access().session(), BoundedSession)
    body = matrix(({}, [[AT_S, "1"]]))
    async with serving(answer(body=body)) as server:
        store = Prometheus(server.url)
        store._client._session._most = 50
        with pytest.raises(Unreachable, match="its answer has more than 50 bytes"):
            await store.engine_series(40.0, AT_S)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param(str(2**30), 2**30 // 16, id="a sixteenth of what the container may use"),
        pytest.param(str(2**20), LEAST, id="but enough for a small fleet"),
        pytest.param(str(2**40), MOST, id="and no more than any fleet needs"),
        pytest.param("max\n", MOST, id="without a limit"),
        pytest.param(None, MOST, id="outside of a container"),
    ],
)
def test_the_bound_follows_the_memory(tmp_path: Path, written: str | None, expected: int) -> None:
    file = tmp_path / "memory.max"
    if written is not None:
        file.write_text(written)
    assert max_answer(file) == expected


@pytest.mark.failure(
    "Prometheus",
    "an answer of a strange form",
    k="held",
    conditions=["MetricsAvailable False PrometheusMalformed"],
    alerts=["OutriderMetricsMissing"],
    ends="next pass",
    guard="adapters/prometheus.py:_row",
)
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            other("matrix", [{"metric": LABELS | {"namespace": ["ml"]}, "values": [[AT_S, "1"]]}]),
            id="a list for a name",
        ),
        pytest.param(other("matrix", [{"metric": ["ml"], "values": [[AT_S, "1"]]}]), id="a list for labels"),
        pytest.param(matrix(({}, [[10**400, "1"]])), id="a time beyond numbers"),
        pytest.param(matrix(({}, [["NaN", "1"]])), id="a time that is none"),
        pytest.param(matrix(({}, [[AT_S, "1"], [AT_S - 5, "2"]])), id="times that go back"),
    ],
)  # fmt: skip
async def test_labels_and_times_of_another_form_end_no_pass(body: object) -> None:
    async with serving(answer(body=body)) as server:
        with pytest.raises(Malformed):
            await Prometheus(server.url).engine_series(40.0, AT_S)
