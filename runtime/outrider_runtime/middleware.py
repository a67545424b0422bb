"""What every HTTP request to vLLM's own server passes: new work is refused while the engine cannot take it, and a
scrape finds fresh figures.

Plain ASGI: Starlette's base class for middleware would hide from vLLM that a client hung up.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from outrider_runtime.progress import Progress, Refusal

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

WORK = ("/v1/", "/v2/", "/inference/", "/invocations", "/cohere/")
"""Beginnings of the paths that make vLLM generate, when posted to."""
NO_WORK = ("/v1/load_lora_adapter", "/v1/unload_lora_adapter")
RETRY_AFTER_S = 1
_SENTENCES: dict[Refusal, str] = {
    "no_progress": "the engine makes no progress; try again, or another replica",
    "queue": "the engine's queue is full; try again, or another replica",
}


class Gate:
    """ASGI middleware."""

    def __init__(self, app: App, door: Door) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["method"] == "POST" and scope["path"].startswith(WORK) and scope["path"] not in NO_WORK:
            await self._work(scope, receive, send)
        else:
            if scope["path"].rstrip("/") == "/metrics":
                await self._door.refresh()
            await self._app(scope, receive, send)

    async def _work(self, scope: Scope, receive: Receive, send: Send) -> None:
        progress = self._door.progress
        if progress is None:  # the engine is still starting: vLLM knows what to say
            await self._app(scope, receive, send)
            return
        refusal = progress.enter(self._door.now_s())
        if refusal is not None:
            await _refuse(send, _SENTENCES[refusal])
            return
        try:
            await self._app(scope, receive, send)
        finally:
            progress.leave()


class Door:
    """What the gate needs to know; `front_door` has the real one."""

    progress: Progress | None = None

    def now_s(self) -> float:
        """A monotonic clock."""
        raise NotImplementedError

    async def refresh(self) -> None:
        """Ask the engine for new figures, not for long."""
        raise NotImplementedError


async def _refuse(send: Send, sentence: str) -> None:
    body = json.dumps({"error": {"message": sentence, "type": "ServiceUnavailableError", "code": 503}}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"retry-after", str(RETRY_AFTER_S).encode()),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
