"""The admin port: a listener of its own, so that a network policy can close it to all but the operator and the kubelet,
with a key of its own, so that no inference key can change a schedule.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from outrider_runtime.protocol import Reply, parse_json

MAX_BODY = 1 << 20
"""Bytes of a document: a row for each of 10,000 batch sizes is a fifth of that."""

Put = Callable[[object], Awaitable[Reply]]
Ask = Callable[[], Awaitable[Reply]]


def application(key_file: str, put: Put, get: Ask, ready: Ask, measure: Put) -> Starlette:
    """The calls of the admin port."""

    async def schedule(request: Request) -> Response:
        if not _key_matches(request, key_file):
            return _json(Reply(401, {"error": "the admin key is missing or wrong"}))
        if request.method == "GET":
            return _json(await get())
        return _json(await _told(request, put))

    async def measuring(request: Request) -> Response:
        if not _key_matches(request, key_file):
            return _json(Reply(401, {"error": "the admin key is missing or wrong"}))
        return _json(await _told(request, measure))

    async def readiness(_: Request) -> Response:
        return _json(await ready())

    return Starlette(
        routes=[
            Route("/schedule", schedule, methods=["GET", "PUT"]),
            Route("/ready", readiness, methods=["GET"]),
            Route("/measuring", measuring, methods=["PUT"]),
        ]
    )


def server(app: Any) -> uvicorn.Server:
    """A server that leaves signals and logging to vLLM's own."""
    made = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
    # Probes and schedules come every few seconds; the handler of the access log is vLLM's, so it is filtered there.
    logging.getLogger("uvicorn.access").addFilter(_is_no_admin_call)
    made.capture_signals = contextlib.nullcontext
    return made


def listen(host: str, port: int) -> socket.socket:
    """A socket for `uvicorn.Server.serve`, which would end the process if it could not bind itself.

    Raises:
        OSError: the address is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


def _is_no_admin_call(record: logging.LogRecord) -> bool:
    """Whether an entry of the access log (client, method, path, …) is of vLLM's own port."""
    path = record.args[2] if isinstance(record.args, tuple) and len(record.args) > 2 else ""
    return str(path).partition("?")[0] not in ("/schedule", "/ready", "/measuring")


async def _told(request: Request, put: Put) -> Reply:
    """Hand a document on, or refuse one that is too large; in pieces it comes without a length."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY:
            return Reply(413, {"error": f"the body is larger than {MAX_BODY} bytes"})
    return await put(parse_json(bytes(body)))


def _key_matches(request: Request, key_file: str) -> bool:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    # All are compared, so that the time taken tells nothing.
    matches = [hmac.compare_digest(given.strip().encode(), key.encode()) for key in _keys(key_file)]
    return scheme.lower() == "bearer" and any(matches)


def _keys(path: str) -> list[str]:
    """The admin keys, one a line, read at each call: rotating a Secret needs no restart. No file, no key."""
    try:
        lines = Path(path).read_text().splitlines() if path else []
    except (OSError, ValueError):
        return []
    return [line.strip() for line in lines if line.strip()]


def _json(reply: Reply) -> Response:
    return JSONResponse(reply.body, reply.status)
