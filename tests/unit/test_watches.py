"""Kopf with our handlers before a pretend API server: what becomes of watches that end, expire or fail."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import kopf
import pytest
import yaml
from aiohttp import web

from outrider import handlers
from outrider.api import GROUP, KIND, PLURAL, VERSION
from outrider.handlers import Operator
from tests.unit.adapters.servers import hang, serving
from tests.unit.reconcile.builders import KEY, body, settings
from tests.unit.reconcile.fakes import Manifest
from tests.unit.test_handlers import Alone, Queue

ROOT = f"/apis/{GROUP}/{VERSION}"
PATIENCE_S = 60.0
"""For a busy machine; all of it takes a fraction of a second."""


class Unstarted(Operator):
    """With a queue that notes what it is given, and no flows."""

    async def start(self) -> None:
        self._queue = Queue()  # type: ignore[assignment]

    async def stop(self) -> None:
        pass


class Api:
    """An API server with services alone: lists them, and tells watches what a test has it say."""

    def __init__(self) -> None:
        self.items: list[Manifest] = [body(generation=3)]
        self.version, self.token = 10, "old"
        self.lists = 0
        self.watches: list[dict[str, str]] = []
        self.log_in: Callable[[str], None] = print
        self.words: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        """What the watch says next; None ends it as the server does when its time is up."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.json_response({"kind": "Status", "code": 401}, status=401)
        if request.path != f"{ROOT}/{PLURAL}" and "watch" in request.query:
            return await hang(request)
        if request.path != f"{ROOT}/{PLURAL}":
            return web.json_response(DISCOVERY.get(request.path, {"metadata": {"resourceVersion": "1"}, "items": []}))
        if "watch" in request.query:
            return await self._watch(request)
        self.lists += 1
        return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": self.items})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.watches.append(dict(request.query))
        response = web.StreamResponse()
        await response.prepare(request)
        while (word := await self.words.get()) is not None:
            await response.write(json.dumps(word).encode() + b"\n")
        return response

    def change(self, generation: int) -> None:
        """The service changes, and no watch tells."""
        self.version += 10
        self.items = [body(generation=generation)]


def served(group: str, version: str, name: str, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A group of one kind as discovery tells of it."""
    one = {"version": version, "groupVersion": f"{group}/{version}"}
    resource = {"name": name, "singularName": kind.lower(), "kind": kind, "verbs": ["get", "list", "watch", "patch"]}
    return {"name": group, "versions": [one], "preferredVersion": one}, resource | {"namespaced": kind == KIND}


_OURS, _SERVICES = served(GROUP, VERSION, PLURAL, KIND)
_EXTENSIONS, _DEFINITIONS = served(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"
)
DISCOVERY: dict[str, Any] = {
    "/api": {"versions": ["v1"]},
    "/api/v1": {"resources": [served("", "v1", "namespaces", "Namespace")[1], served("", "v1", "events", "Event")[1]]},
    "/apis": {"groups": [_OURS, _EXTENSIONS]},
    "/apis/apiextensions.k8s.io/v1": {"resources": [_DEFINITIONS]},
    ROOT: {"resources": [_SERVICES]},
}
"""What Kopf itself wants to know of, and our services; none of their children is served."""


@asynccontextmanager
async def running(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> AsyncIterator[tuple[Api, Operator, asyncio.Task[None]]]:
    """Kopf as `outrider run` starts it, once it watches."""
    api, operator = Api(), Unstarted(settings(), Alone())
    async with serving(api.answer) as server:
        monkeypatch.setenv("KUBECONFIG", str(folder / "kubeconfig"))
        api.log_in = partial(log_in, folder / "kubeconfig", server.url)
        api.log_in(api.token)
        task = asyncio.create_task(kopf.operator(registry=handlers.register(operator), clusterwide=True))
        try:
            await until("a watch", lambda: len(api.watches) == 1 or task.done())
            yield api, operator, task
        finally:
            task.cancel()
            with contextlib.suppress(BaseException):
                await task


def log_in(kubeconfig: Path, url: str, token: str) -> None:
    named = {"clusters": {"server": url}, "users": {"token": token}, "contexts": {"cluster": "one", "user": "one"}}
    parts = {part: [{"name": "one", part.removesuffix("s"): value}] for part, value in named.items()}
    kubeconfig.write_text(yaml.safe_dump({"current-context": "one", **parts}))


async def until(what: str, condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        await asyncio.sleep(0.01)
        assert time.monotonic() < end_s, f"no sign of {what}"


def generation(operator: Operator) -> int:
    """Of the service, as we know it."""
    service = operator.registry.get(KEY)
    return 0 if service is None else int(service.body["metadata"]["generation"])


GONE = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}


@pytest.mark.failure(
    "API server",
    "410 of a watch: it was cut, or heard no bookmark, for too long",
    status="all is listed anew",
    ends="at once; what went meanwhile is dropped within five minutes",
    guard="handlers.py:register",
)
async def test_a_watch_that_expired_begins_anew_with_a_list(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with running(monkeypatch, tmp_path) as (api, operator, _):
        await until("the first list", lambda: generation(operator) == 3)
        api.change(4)
        api.words.put_nowait(GONE)
        await until("the second list", lambda: generation(operator) == 4)
        assert api.lists == 2


async def test_a_watch_that_ends_in_time_goes_on_from_its_last_bookmark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with running(monkeypatch, tmp_path) as (api, _, _):
        bookmark = {"kind": KIND, "metadata": {"resourceVersion": "57"}}
        api.words.put_nowait({"type": "BOOKMARK", "object": bookmark})
        api.words.put_nowait(None)
        await until("another watch", lambda: len(api.watches) == 2)
        assert [one["resourceVersion"] for one in api.watches] == ["10", "57"]
        assert all(one["allowWatchBookmarks"] == "true" and one["timeoutSeconds"] == "300" for one in api.watches)


@pytest.mark.failure(
    "API server",
    "a watch tells of another error than 410",
    status="the process ends, instead of going on half deaf",
    ends="start-up",
    guard="cli/run.py:_serve",
)
@pytest.mark.parametrize("code", [409, 500])
async def test_a_watch_that_fails_ends_the_process(code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with running(monkeypatch, tmp_path) as (api, _, task):
        api.words.put_nowait({"type": "ERROR", "object": {"kind": "Status", "code": code, "message": "told so"}})
        await until("the end", task.done)


@pytest.mark.failure("API server", "our token is rotated")
async def test_a_watch_that_is_refused_logs_in_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with running(monkeypatch, tmp_path) as (api, operator, _):
        await until("the first list", lambda: generation(operator) == 3)
        api.token = "new"
        api.log_in("new")
        api.change(4)
        api.words.put_nowait(GONE)
        await until("a list with the new token", lambda: generation(operator) == 4)
