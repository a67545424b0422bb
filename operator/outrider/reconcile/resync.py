"""What vanished while nobody looked: after a watch was cut for long, Kopf lists again and reports what is there, never
what is gone.

Without this a deleted service would be controlled for ever, and a deleted pod be called ready. The lists also bear
witness of the watch: a change that it has not told of by the next look will not come.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from outrider.api import API_VERSION, KIND
from outrider.errors import KubeError
from outrider.reconcile.neighbours import KubeApi, list_in
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
        self._namespaces = namespaces
        self._untold: dict[ServiceKey, tuple[str, str]] = {}
        self.silent: ServiceKey | None = None
        """A service whose change the watch has kept from us since the look before the last; None while it tells all."""

    async def run(self) -> None:
        """Drop what was known before the lists were asked for and is not in them."""
        known = {service.key: service.body["metadata"]["uid"] for service in self._registry}
        pods = {(service.key, name): pod.uid for service in self._registry for name, pod in list(service.pods.items())}
        try:
            resources = await self._versions(API_VERSION, KIND, "")
            present = await self._versions("v1", "Pod", SERVICE_LABEL)
        except KubeError as error:
            logger.warning("not compared with the API server: %s", error.message, extra={"reason": error.reason})
            return
        self._listen(resources)
        for key, uid in known.items():
            if uid not in resources:
                self._registry.forget(key, uid)
        for (key, name), uid in pods.items():
            if uid not in present and self._registry.forget_pod(key, name, uid):
                self._reconcile(key)

    def _listen(self, listed: Mapping[str, str]) -> None:
        """Compare with what the watch has told; an event may be on its way, hence two looks."""
        untold: dict[ServiceKey, tuple[str, str]] = {}
        for service in self._registry:
            meta = service.body["metadata"]
            told = (meta["uid"], meta.get("resourceVersion", ""))
            if listed.get(told[0], told[1]) != told[1]:
                untold[service.key] = told
        self.silent = next((key for key, told in untold.items() if self._untold.get(key) == told), None)
        self._untold = untold

    async def _versions(self, api_version: str, kind: str, selector: str) -> dict[str, str]:
        """Resource versions by UID."""
        metas = [item["metadata"] for item in await list_in(self._kube, self._namespaces, api_version, kind, selector)]
        return {meta["uid"]: meta.get("resourceVersion", "") for meta in metas}
