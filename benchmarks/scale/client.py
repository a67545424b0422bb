"""The client that plays users, kubelets and the controller of Deployments, beside the operator and not through it."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import aiohttp
import yaml

Manifest = dict[str, Any]

AT_ONCE = 8
"""Calls under way: enough to keep two cores busy."""
MERGE = "application/merge-patch+json"


class Client:
    """Calls and watches as the cluster's administrator."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        self._server = cluster["server"]
        self._tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        pair = kubeconfig.with_name("scale-client.pem")
        pair.touch(mode=0o600)
        pair.write_bytes(
            base64.b64decode(user["client-key-data"]) + b"\n" + base64.b64decode(user["client-certificate-data"])
        )
        self._tls.load_cert_chain(pair)

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            self._server,
            connector=aiohttp.TCPConnector(ssl=self._tls, limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, content_type: str = "application/json"
    ) -> Manifest:
        """One call, and the object that came back."""
        data = None if body is None else json.dumps(body)
        async with self._session.request(method, f"/{path}", data=data, headers={"Content-Type": content_type}) as got:
            text = await got.text()
            if got.status >= 400:
                raise RuntimeError(f"{method} {path}: {got.status} {text[:500]}")
            found: Manifest = json.loads(text)
            return found

    async def text(self, path: str) -> str:
        """What the API server says there in plain text."""
        async with self._session.get(f"/{path}") as got:
            return await got.text()

    async def watch(self, path: str, selector: str = "") -> AsyncIterator[Manifest]:
        """Objects of a collection as they change from now on."""
        listed = await self.call("GET", f"{path}?{urlencode({'limit': 1, 'labelSelector': selector})}")
        query = {
            "watch": "true", "resourceVersion": listed["metadata"]["resourceVersion"], "labelSelector": selector,
            "timeoutSeconds": 3600,
        }  # fmt: skip
        async with self._session.get(f"/{path}?{urlencode(query)}", read_bufsize=2**24) as answer:
            async for line in answer.content:
                event = json.loads(line)
                if event["type"] in ("ADDED", "MODIFIED"):
                    yield event["object"]

    @asynccontextmanager
    async def seen(self, path: str, selector: str = "") -> AsyncIterator[Callable[[], Awaitable[Any]]]:
        """Objects as a watch tells of them; the watch is open when the block begins."""
        queue: asyncio.Queue[Any] = asyncio.Queue()

        async def follow() -> None:
            async for body in self.watch(path, selector):
                queue.put_nowait(body)

        watching = asyncio.create_task(follow())
        try:
            await asyncio.sleep(0.5)
            yield queue.get
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


async def each(work: Callable[[int], Awaitable[None]], numbers: Iterable[int], at_once: int = AT_ONCE) -> None:
    """Run the work for each number, so many at once."""
    waiting = iter(numbers)

    async def worker() -> None:
        for number in waiting:
            await work(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(worker())
