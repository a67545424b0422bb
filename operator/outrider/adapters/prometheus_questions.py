"""Questions that people ask a metrics store: what is now, and how it went.

The operator's own questions are in `outrider.adapters.prometheus`. A store is asked at its address or, where only the
cluster reaches it, through the API server's proxy. NaN and infinity stop here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol
from urllib.parse import urlsplit

from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.util import Retry

from outrider.adapters.kube import Kube
from outrider.adapters.prometheus import WRONG_FORM, finite
from outrider.adapters.prometheus_access import Access
from outrider.errors import AccessDenied, KubeError, Malformed, Unreachable

TIMEOUT_S = 10.0
_IN_CLUSTER = re.compile(r"(?P<name>[a-z0-9-]+)\.(?P<namespace>[a-z0-9-]+)(\.svc(\.[a-z0-9.-]+)?)?")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Course:
    """One series: its labels, and samples as ``(Unix time, value)``, ascending."""

    labels: Mapping[str, str]
    samples: tuple[tuple[float, float], ...]


class Questions(Protocol):
    """A metrics store; both questions raise `outrider.errors.MetricsError`."""

    where: str
    """How it is reached, for people."""

    async def now(self, query: str) -> list[Course]:
        """One sample a series."""

    async def over(self, query: str, start_s: float, end_s: float, step_s: float) -> list[Course]:
        """Samples every ``step_s`` from ``start_s`` to ``end_s``."""


class Direct:
    """A store at its address."""

    def __init__(self, url: str, access: Access) -> None:
        self._client = PrometheusConnect(
            url, session=access.session(), retry=Retry(total=0), timeout=TIMEOUT_S, method="POST"
        )
        self._access, self.where = access, f"Prometheus at {url}"

    async def now(self, query: str) -> list[Course]:
        """One sample a series."""
        return await self._ask(query, self._client.custom_query, query)

    async def over(self, query: str, start_s: float, end_s: float, step_s: float) -> list[Course]:
        """Samples every ``step_s`` from ``start_s`` to ``end_s``."""
        moments = (datetime.fromtimestamp(start_s, UTC), datetime.fromtimestamp(end_s, UTC))
        return await self._ask(query, self._client.custom_query_range, query, *moments, f"{step_s:g}")

    async def _ask(self, query: str, call: Any, *arguments: Any) -> list[Course]:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return _courses(await asyncio.to_thread(call, *arguments))
        # The first: an answer that is no JSON is an OSError too.
        except WRONG_FORM as error:
            raise _malformed(query, self.where, f"look at {self._access.address}") from error
        except (AccessDenied, OSError, PrometheusApiClientException) as error:
            raise self._access.explained(error, self.where) from error


class ThroughKube:
    """A store behind a Service of the cluster, asked through the API server."""

    def __init__(self, kube: Kube, url: str, remedy: str) -> None:
        """``url`` must be one for which `in_cluster` is true; ``remedy`` says what to look at when it is wrong."""
        parts = urlsplit(url)
        host = _IN_CLUSTER.fullmatch(parts.hostname or "")
        assert host is not None
        port = parts.port or _PORTS[parts.scheme]
        self._kube, self._root, self._remedy = kube, parts.path.strip("/"), remedy
        self._service = (host["namespace"], f"{parts.scheme}:{host['name']}:{port}")
        self.where = f"Prometheus at {url}, through the API server"

    async def now(self, query: str) -> list[Course]:
        """One sample a series."""
        return await self._ask("query", query, {})

    async def over(self, query: str, start_s: float, end_s: float, step_s: float) -> list[Course]:
        """Samples every ``step_s`` from ``start_s`` to ``end_s``."""
        span = {"start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:g}"}
        return await self._ask("query_range", query, span)

    async def _ask(self, question: str, query: str, more: Mapping[str, str]) -> list[Course]:
        path = "/".join(filter(None, (self._root, "api/v1", question)))
        try:
            answer = await self._kube.proxied(*self._service, path, {"query": query, **more})
            return _courses(answer["data"]["result"])
        except KubeError as error:
            raise Unreachable("PrometheusUnreachable", f"{self.where}: {error.message}: {self._remedy}") from error
        except WRONG_FORM as error:
            raise _malformed(query, self.where, self._remedy) from error


def in_cluster(url: str) -> bool:
    """Whether an address is that of a Service, which only the cluster's own name server knows."""
    parts = urlsplit(url)
    return parts.scheme in _PORTS and _IN_CLUSTER.fullmatch(parts.hostname or "") is not None


def _courses(result: Any) -> list[Course]:
    return [
        Course(_labels(row["metric"]), finite(row["values"] if "values" in row else [row["value"]])) for row in result
    ]


def _labels(metric: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(text) for name, text in metric.items()}


def _malformed(query: str, where: str, remedy: str) -> Malformed:
    return Malformed("PrometheusMalformed", f"{where} did not answer '{query}' with series; if it is none: {remedy}")
