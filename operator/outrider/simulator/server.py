"""The two listeners of an engine container: vLLM's HTTP API and the runtime plugin's admin port."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from outrider.simulator import openai
from outrider.simulator.admin import VLLM_VERSION
from outrider.simulator.engine import RequestTooLong
from outrider.simulator.live import LiveEngine
from outrider.simulator.metrics import CONTENT_TYPE
from outrider.simulator.openai import Ask, BadRequest
from outrider.simulator.request import RequestRecord
from outrider_runtime.protocol import Reply, parse_json

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

GUARDED = ("/v1", "/v2", "/inference", "/cohere")  # the prefixes that an API key guards in vLLM, no others
MAX_BODY = 64 * 2**20  # bytes; a prompt of token ids takes some seven bytes a token
CLOSE_S = 2.0  # for answers that are complete but not yet sent


class EngineServer:
    """Both listeners on one address. vLLM listens once it is up, so start this after loading."""

    def __init__(self, live: LiveEngine) -> None:
        self._live = live
        self._runners: list[web.AppRunner] = []

    async def start(self, address: str) -> None:
        """Open the ports; raises OSError if one is taken."""
        settings = self._live.settings
        await self._listen(engine_app(self._live), address, settings.port)
        if settings.plugin is not None:
            await self._listen(admin_app(self._live), address, settings.plugin.admin_port)

    async def close(self) -> None:
        """Abort what still runs, let its answers go out, and close the ports."""
        self._live.close()
        for runner in self._runners:
            await runner.cleanup()
        self._runners.clear()

    async def _listen(self, app: web.Application, address: str, port: int) -> None:
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=CLOSE_S)
        await runner.setup()
        self._runners.append(runner)
        await web.TCPSite(runner, address, port, reuse_address=True).start()


class _Collector:
    """Listener of a request: what each step gave, for the handler to pick up."""

    every_step = True

    def __init__(self) -> None:
        self.parts: asyncio.Queue[int | RequestRecord] = asyncio.Queue()

    def emitted(self, num_tokens: int, now_s: float) -> None:  # noqa: ARG002
        self.parts.put_nowait(num_tokens)

    def finished(self, record: RequestRecord) -> None:
        self.parts.put_nowait(record)


class _End:
    """Listener of a request whose tokens nobody watches."""

    every_step = False

    def __init__(self) -> None:
        self.record: asyncio.Future[RequestRecord] = asyncio.get_running_loop().create_future()

    def emitted(self, num_tokens: int, now_s: float) -> None:
        """Nobody asked."""

    def finished(self, record: RequestRecord) -> None:
        if not self.record.done():
            self.record.set_result(record)


def engine_app(live: LiveEngine) -> web.Application:
    """Port 8000."""

    @web.middleware
    async def key_guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        keys = live.settings.api_keys
        if keys and request.path.startswith(GUARDED) and not _bearer_matches(request, keys):
            return web.json_response({"error": "Unauthorized"}, status=401)
        return await handler(request)

    async def health(_: web.Request) -> web.Response:
        return web.Response()

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=live.scrape(), headers={"Content-Type": CONTENT_TYPE})

    async def version(_: web.Request) -> web.Response:
        return web.json_response({"version": VLLM_VERSION})

    async def models(_: web.Request) -> web.Response:
        return web.json_response(openai.model_list(live.settings))

    async def completions(request: web.Request) -> web.StreamResponse:
        return await _complete(live, request, chat=False)

    async def chat(request: web.Request) -> web.StreamResponse:
        return await _complete(live, request, chat=True)

    app = web.Application(middlewares=[key_guard], client_max_size=MAX_BODY)
    app.add_routes(
        [
            web.get("/health", health),
            web.route("*", "/ping", health),
            web.get("/metrics", metrics),
            web.get("/version", version),
            web.get("/v1/models", models),
            web.post("/v1/completions", completions),
            web.post("/v1/chat/completions", chat),
        ]
    )
    return app


def admin_app(live: LiveEngine) -> web.Application:
    """Port 8001."""

    @web.middleware
    async def key_guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path != "/ready" and not _bearer_matches(request, live.admin_keys()):
            return web.json_response({"error": "the admin key is missing or wrong"}, status=401)
        return await handler(request)

    async def put_schedule(request: web.Request) -> web.Response:
        if live.draining:
            return _json(Reply(503, {"error": "not controllable", "reason": "the server is shutting down"}))
        return _json(live.put(parse_json(await request.read())))

    async def get_schedule(_: web.Request) -> web.Response:
        return _json(live.get())

    async def ready(_: web.Request) -> web.Response:
        return _json(live.ready())

    app = web.Application(middlewares=[key_guard])
    app.add_routes([web.put("/schedule", put_schedule), web.get("/schedule", get_schedule), web.get("/ready", ready)])
    return app


async def _complete(live: LiveEngine, request: web.Request, *, chat: bool) -> web.StreamResponse:
    settings = live.settings
    try:
        ask = openai.parse_ask(
            parse_json(await request.read()),
            chat=chat,
            models=settings.served_model_names,
            max_model_len=settings.max_model_len,
            speculating=settings.speculation is not None,
            id=live.new_id(),
            now_s=live.now_s(),
            careless=live.behaviour.careless,
        )
        if live.draining:
            return await _abort_while_draining(ask, request)
        return await (_stream(live, ask, request) if ask.stream else _whole(live, ask))
    except BadRequest as error:
        return web.json_response(error.body, status=error.status)
    except RequestTooLong as error:
        return web.json_response(BadRequest(str(error)).body, status=400)


async def _whole(live: LiveEngine, ask: Ask) -> web.Response:
    end = _End()
    live.submit(ask.request, end)
    try:
        record = await end.record
    except asyncio.CancelledError:
        live.abort(ask.request.id)
        raise
    if record.finish_reason == "error":
        return web.json_response(openai.FAILURE.body, status=openai.FAILURE.status)
    return web.json_response(openai.answer(ask, time.time(), record.output_tokens, record.finish_reason))


async def _stream(live: LiveEngine, ask: Ask, request: web.Request) -> web.StreamResponse:
    collector, created_s, sent = _Collector(), time.time(), 0
    live.submit(ask.request, collector)
    try:
        response = await _event_stream(request)
        while not isinstance(part := await collector.parts.get(), RequestRecord):
            await response.write(openai.event(openai.chunk(ask, created_s, openai.words(ask, sent, part), None)))
            sent += part
        if part.finish_reason == "error":  # the status was sent long ago
            await response.write(openai.event(openai.FAILURE.body))
        else:
            await response.write(openai.event(openai.chunk(ask, created_s, "", part.finish_reason)))
        if ask.include_usage:
            await response.write(openai.event(openai.usage_chunk(ask, created_s, sent)))
        await response.write(openai.DONE)
        await response.write_eof()
    except (asyncio.CancelledError, ConnectionError):
        live.abort(ask.request.id)  # the client hung up
        raise
    return response


async def _abort_while_draining(ask: Ask, request: web.Request) -> web.StreamResponse:
    """vLLM answers new requests with success and nothing in it while it drains: a trap for load balancers."""
    if not ask.stream:
        return web.json_response(openai.answer(ask, time.time(), 0, "abort"))
    response = await _event_stream(request)
    await response.write(openai.DONE)
    await response.write_eof()
    return response


async def _event_stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    return response


def _bearer_matches(request: web.Request, keys: tuple[str, ...] | list[str]) -> bool:
    given = request.headers.get("Authorization", "").encode(errors="surrogateescape")
    return any(hmac.compare_digest(given, f"Bearer {key}".encode()) for key in keys)


def _json(reply: Reply) -> web.Response:
    return web.json_response(reply.body, status=reply.status)
