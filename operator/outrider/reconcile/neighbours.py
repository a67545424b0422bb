"""What the passes need of their neighbours: a few methods each, so that a test can stand in for any of them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from outrider.adapters.engine import Acknowledgement
from outrider.core.schedule import Schedule
from outrider.core.series import Series
from outrider.settings import Settings

Manifest = dict[str, Any]


class KubeApi(Protocol):
    """The API server."""

    async def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> Manifest | None:
        """The object, or None; a kind of the whole cluster has no namespace."""

    async def list(
        self, api_version: str, kind: str, namespace: str | None = ..., label_selector: str = ...
    ) -> list[Manifest]:
        """All objects of a kind."""

    async def apply(self, manifest: Mapping[str, Any], *, manager: str = ..., subresource: str = ...) -> Manifest:
        """Server-side apply; returns the object as it is afterwards."""

    async def create(self, manifest: Mapping[str, Any]) -> Manifest:
        """Create an object that must not exist."""

    async def delete(self, api_version: str, kind: str, namespace: str, name: str, uid: str) -> None:
        """Delete this very object, if it is there."""

    async def serves(self, api_version: str, kind: str) -> bool:
        """Whether the API server knows the kind."""


class MetricsStore(Protocol):
    """Prometheus."""

    async def engine_series(
        self, window_s: float, at_s: float, services: Collection[tuple[str, str]] | None = ...
    ) -> Mapping[tuple[str, str], list[Series]]:
        """Samples of replicas' engines by service: of all, or of these at least."""

    async def glance(self, window_s: float, at_s: float) -> Mapping[tuple[str, str], list[Series]]:
        """The few families that `outrider.core.glance` reads, of all services."""

    async def compared_series(
        self, services: Collection[tuple[str, str]], window_s: float, at_s: float
    ) -> Mapping[tuple[str, str], list[Series]]:
        """Samples of both tracks' engines of some services, with how their requests ended."""


class Engines(Protocol):
    """The admin ports of engine pods."""

    async def put_schedule(
        self, address: str, key: str, generation: int, schedule: Schedule, lease_s: int
    ) -> Acknowledgement:
        """Deliver a schedule."""


class Clock(Protocol):
    """Wall-clock time; Prometheus and the memory document are read on it."""

    def __call__(self) -> float:
        """Unix time, seconds."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """All of them, and the settings of the process."""

    kube: KubeApi
    metrics: MetricsStore
    engines: Engines
    clock: Clock
    settings: Settings


async def list_in(
    kube: KubeApi, namespaces: Sequence[str], api_version: str, kind: str, label_selector: str = ""
) -> list[Manifest]:
    """All objects of a kind in these namespaces, or in all when none is named: one call each."""
    lists = await asyncio.gather(
        *(kube.list(api_version, kind, namespace, label_selector) for namespace in namespaces or (None,))
    )
    return [body for bodies in lists for body in bodies]
