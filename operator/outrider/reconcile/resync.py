"""What vanished while nobody looked: after a watch was cut for long, Kopf lists again and reports what is there, never
what is gone.

Without this a deleted service would be controlled for ever, and a deleted pod be called ready.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from outrider.api import API_VERSION, KIND
from outrider.errors import KubeError
from outrider.reconcile.neighbours import KubeApi
from outrider.reconcile.registry import SERVICE_LABEL, Registry, ServiceKey

logger = logging.getLogger(__name__)

EVERY_S = 300.0
"""A ghost lives this long at most; the API server is asked for two lists as often."""


class Resync:
    """Compares the registry with what the API server has; ``reconcile`` is told of services that lost a pod."""

    def __init__(
        self,
        registry: Registry,
        kube: KubeApi,
        namespaces: tuple[str, ...],
        reconcile: Callable[[ServiceKey], None],
    ) -> None:
        self._registry, self._kube, self._reconcile = registry, kube, reconcile
        self._namespaces: tuple[str | None, ...] = namespaces or (None,)

    async def run(self) -> None:
        """Drop what was known before the lists were asked for and is not in them."""
        known = {service.key: service.body["metadata"]["uid"] for service in self._registry}
        pods = {(service.key, name): pod.uid for service in self._registry for name, pod in list(service.pods.items())}
        try:
            resources = await self._uids(API_VERSION, KIND, "")
            present = await self._uids("v1", "Pod", SERVICE_LABEL)
        except KubeError as error:
            logger.warning("not compared with the API server: %s", error.message, extra={"reason": error.reason})
            return
        for key, uid in known.items():
            if uid not in resources:
                self._registry.forget(key, uid)
        for (key, name), uid in pods.items():
            if uid not in present and self._registry.forget_pod(key, name, uid):
                self._reconcile(key)

    async def _uids(self, api_version: str, kind: str, selector: str) -> set[str]:
        lists = await asyncio.gather(
            *(self._kube.list(api_version, kind, namespace, selector) for namespace in self._namespaces)
        )
        return {item["metadata"]["uid"] for items in lists for item in items}
