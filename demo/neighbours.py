"""Whom the observer asks: the API server, the engines and Prometheus. Never the operator.

Each reader returns plain values and translates its neighbour's faults into `NoAnswer`; an observer that misses one look
takes the next.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import aiohttp
from kubernetes.aio import config as kube_config
from kubernetes.aio.client.configuration import Configuration

Manifest = dict[str, Any]

TIMEOUT = aiohttp.ClientTimeout(total=5)
WATCH = aiohttp.ClientTimeout(total=None, sock_connect=5)
HTTP_PORT, ADMIN_PORT = 8000, 8001
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)\{([^}]*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class NoAnswer(Exception):
    """A neighbour did not answer, or not in the form expected."""


class ServiceGone(Exception):
    """Somebody deleted a service that the demo plays with."""

    def __init__(self, name: str) -> None:
        super().__init__(f"service {name} was deleted while the demo ran; it cannot go on without it. Start it again")


class ApiServer:
    """Reads objects as the cluster's administrator."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    @classmethod
    async def connect(cls, kubeconfig: Path) -> Self:
        """Read the kubeconfig; `close` ends the connections."""
        configuration = Configuration()
        await kube_config.load_kube_config(str(kubeconfig), client_configuration=configuration)
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file is None:
            raise NoAnswer(f"{kubeconfig} shows no client certificate")
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
        connector = aiohttp.TCPConnector(ssl=context)
        return cls(aiohttp.ClientSession(configuration.host, connector=connector, timeout=TIMEOUT))

    async def close(self) -> None:
        """End the connections."""
        await self._session.close()

    async def get(self, path: str) -> Manifest:
        """An object or a list."""
        found: Manifest = await _json(self._session, path)
        return found

    async def watch(self, path: str) -> AsyncIterator[tuple[str, Manifest]]:
        """What is there and every change from then on, as ``(ADDED | MODIFIED | DELETED, object)``, until cut off."""
        separator = "&" if "?" in path else "?"
        try:
            async with self._session.get(f"{path}{separator}watch=true", timeout=WATCH) as answer:
                async for line in answer.content:
                    event = json.loads(line)
                    if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                        yield event["type"], event["object"]
        except (TimeoutError, aiohttp.ClientError, ValueError) as error:
            raise NoAnswer(f"watch of {path}: {error!r}") from error


class Engines:
    """Asks engine pods at their own addresses, as the kubelet and Prometheus do."""

    def __init__(self, api: ApiServer, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self._keys: dict[str, str] = {}
        self._session = aiohttp.ClientSession(timeout=TIMEOUT)

    async def close(self) -> None:
        """End the connections."""
        await self._session.close()

    async def schedule(self, service: str, address: str) -> Manifest:
        """``GET /schedule`` of a pod's admin port."""
        key = self._keys.get(service)
        if key is None:
            secret = await self._api.get(f"/api/v1/namespaces/{self._namespace}/secrets/{service}-admin")
            key = self._keys[service] = base64.b64decode(secret["data"]["key"]).decode().split()[0]
        headers = {"Authorization": f"Bearer {key}"}
        found: Manifest = await _json(self._session, f"http://{address}:{ADMIN_PORT}/schedule", headers)
        return found

    async def samples(self, address: str, prefix: str) -> list[tuple[str, dict[str, str], float]]:
        """The samples of a pod's metrics page whose names begin with ``prefix``."""
        try:
            async with self._session.get(f"http://{address}:{HTTP_PORT}/metrics") as answer:
                text = await answer.text()
        except (TimeoutError, aiohttp.ClientError) as error:
            raise NoAnswer(f"metrics of {address}: {error!r}") from error
        return parse_samples(text, prefix)


class Prometheus:
    """Instant queries."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session = aiohttp.ClientSession(timeout=TIMEOUT)

    async def close(self) -> None:
        """End the connections."""
        await self._session.close()

    async def query(self, query: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each element of an instant vector, NaN left out."""
        document = await _json(self._session, f"{self._url}/api/v1/query", params={"query": query})
        rows = [(row["metric"], float(row["value"][1])) for row in document["data"]["result"]]
        return [(labels, value) for labels, value in rows if value == value]

    async def by_service(self, query: str) -> dict[str, float]:
        """The same, by the label of the service."""
        return {labels.get("serving_outrider_dev_service", ""): value for labels, value in await self.query(query)}


def parse_samples(text: str, prefix: str) -> list[tuple[str, dict[str, str], float]]:
    """Name, labels and value of each labelled sample of an exposition whose name begins with ``prefix``."""
    return [
        (name, dict(_LABEL.findall(labels)), float(value))
        for name, labels, value in _SAMPLE.findall(text)
        if name.startswith(prefix)
    ]


async def gather_known(*calls: Any) -> list[Any]:
    """Run calls together; those without an answer give None."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, NoAnswer):
            raise result
    return [None if isinstance(result, NoAnswer) else result for result in results]


async def _json(
    session: aiohttp.ClientSession,
    url: str,
    headers: dict[str, str] | None = None,
    params: dict[str, str] | None = None,
) -> Any:
    try:
        async with session.get(url, headers=headers, params=params) as answer:
            if answer.status != 200:
                raise NoAnswer(f"GET {url}: status {answer.status}: {(await answer.text())[:200]}")
            return await answer.json(content_type=None)
    except (TimeoutError, aiohttp.ClientError, ValueError) as error:
        raise NoAnswer(f"GET {url}: {error!r}") from error
