"""What an operator answers to probes while another one is active: that it lives, and what it waits for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web

PATH = "/healthz"


@asynccontextmanager
async def probes_answered(address: str, port: int, sentence: Callable[[], str]) -> AsyncIterator[None]:
    """Serve the page until the operator's own takes the port over; none at port 0.

    It has the form of the active operator's page, and is as good an answer: one that waits is well, and ready to act.
    """
    from aiohttp import web  # here and not above: it would slow every other command down

    async def page(_: web.Request) -> web.Response:
        return web.json_response({"leader": sentence()})

    if not port:
        yield
        return
    app = web.Application()
    app.add_routes([web.get(PATH, page)])
    runner = web.AppRunner(app, handle_signals=False, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, address, port).start()
        yield
    finally:
        await runner.cleanup()
