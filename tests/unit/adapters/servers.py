"""Pretend neighbours over HTTP, on loopback addresses: they record what they are asked and answer as they are told."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    """Parsed JSON, or None without a body."""


def answer(status: int = 200, body: Any = None, text: str | None = None, **headers: str) -> Answer:
    """Always the same answer: JSON, or ``text`` as it is; underscores in header names become dashes."""

    async def give(_: web.Request) -> web.StreamResponse:
        content = json.dumps({} if body is None else body) if text is None else text
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, text=content, headers=named)

    return give


async def hang(_: web.Request) -> web.StreamResponse:
    """Never answers."""
    await asyncio.Event().wait()
    raise AssertionError


async def hang_up(request: web.Request) -> web.StreamResponse:
    """Closes the connection instead of answering."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


def pieces(*parts: bytes, pause_s: float = 0.02) -> Answer:
    """An answer that arrives in several packets."""

    async def give(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = sum(map(len, parts))
        await response.prepare(request)
        for part in parts:
            await response.write(part)
            await asyncio.sleep(pause_s)
        await response.write_eof()
        return response

    return give


@dataclass
class Server:
    """Answers every request with ``give``."""

    give: Answer
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        self.asked.append(
            Asked(
                request.method,
                request.path,
                dict(request.query),
                dict(request.headers),
                json.loads(text) if text else None,
            )
        )
        return await self.give(request)


@asynccontextmanager
async def serving(
    give: Answer, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    """A server that runs for the length of the block; port 0 takes any."""
    server = Server(give)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.01, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, host, port, ssl_context=tls)
    await site.start()
    server.url = f"http{'s' if tls else ''}://{host}:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()
